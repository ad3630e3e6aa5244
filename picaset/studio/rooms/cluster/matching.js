// Gives components at similar positions the same colour, across methods and across changes of the points.

export class Matching {
  constructor() {
    this.anchors = [];
  }

  // Sets the reference: the components of the best method.
  anchor(components) {
    const order = this.colours(components);
    const anchors = [];
    components.forEach((component, index) => {
      anchors[order[index]] = component.mean;
    });
    this.anchors = anchors;
  }

  // Returns a colour index for each component, all different: nearest pairs of component and reference first.
  colours(components) {
    const pairs = [];
    components.forEach((component, index) => {
      this.anchors.forEach((mean, colour) => {
        if (mean) pairs.push([Math.hypot(component.mean[0] - mean[0], component.mean[1] - mean[1]), index, colour]);
      });
    });
    pairs.sort((a, b) => a[0] - b[0]);
    const chosen = new Array(components.length).fill(-1);
    const taken = new Set();
    for (const [, index, colour] of pairs) {
      if (chosen[index] >= 0 || taken.has(colour)) continue;
      chosen[index] = colour;
      taken.add(colour);
    }
    let free = 0;
    return chosen.map((colour) => {
      if (colour >= 0) return colour;
      while (taken.has(free)) free += 1;
      taken.add(free);
      return free;
    });
  }
}
