// Curves of several runs over their steps, by uPlot.

import uPlot from "/static/uplot/uPlot.esm.js";

export class Chart {
  constructor(place, colours) {
    Object.assign(this, { place, colours });
    this.plot = null;
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(place);
  }

  size() {
    return { width: Math.max(240, this.place.clientWidth), height: 320 };
  }

  // `curves`: a name, a colour, steps and values each.
  show(measure, curves) {
    const steps = [...new Set(curves.flatMap((curve) => curve.steps))].sort((one, other) => one - other);
    const data = [steps, ...curves.map((curve) => {
      const at = new Map(curve.steps.map((step, index) => [step, curve.values[index]]));
      return steps.map((step) => at.get(step));
    })];
    const key = JSON.stringify([measure, curves.map((curve) => [curve.name, curve.colour]), this.colours().ink]);
    if (this.plot && key === this.key) {
      this.plot.setData(data);
      return;
    }
    this.key = key;
    this.plot?.destroy();
    this.plot = curves.length ? new uPlot(this.options(measure, curves), data, this.place) : null;
  }

  options(measure, curves) {
    const { muted, line } = this.colours();
    const axis = { stroke: muted, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    return {
      ...this.size(),
      scales: { x: { time: false } },
      axes: [{ ...axis, label: "step", labelSize: 22 }, { ...axis, label: measure, size: 64, labelSize: 22 }],
      series: [
        { label: "step" },
        ...curves.map((curve) => ({
          label: curve.name, stroke: curve.colour, width: 2, dash: curve.dash, spanGaps: true,
          points: { show: curve.values.length < 2 },
          value: (_, found) => (found === null || found === undefined ? "–" : found.toPrecision(4)),
        })),
      ],
    };
  }
}
