// Colours that stay with a cluster: components of different methods, and of one gesture and the next, are matched by
// where they lie.

export class Matching {
  constructor() {
    this.anchors = [];
  }

  // The components of the best method are what the others are matched to.
  anchor(components) {
    const order = this.colours(components);
    const anchors = [];
    components.forEach((component, index) => {
      anchors[order[index]] = component.mean;
    });
    this.anchors = anchors;
  }

  // For each component the number of its colour, all different.
  colours(components) {
    const pairs = [];
    components.forEach((component, index) => {
      this.anchors.forEach((place, colour) => {
        if (place) pairs.push([Math.hypot(component.mean[0] - place[0], component.mean[1] - place[1]), index, colour]);
      });
    });
    pairs.sort((one, other) => one[0] - other[0]);
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
