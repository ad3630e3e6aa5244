// Curves of several runs over their training steps, drawn with uPlot.

import uPlot from "/static/uplot/uPlot.esm.js";

export class Chart {
  constructor(container, colours) {
    Object.assign(this, { container, colours });
    this.plot = null;
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(container);
  }

  size() {
    return { width: Math.max(240, this.container.clientWidth), height: 320 };
  }

  // `curves`: name, colour, steps and values of each.
  show(metric, curves) {
    const steps = [...new Set(curves.flatMap((curve) => curve.steps))].sort((a, b) => a - b);
    const data = [steps, ...curves.map((curve) => {
      const values = new Map(curve.steps.map((step, index) => [step, curve.values[index]]));
      return steps.map((step) => values.get(step));
    })];
    const key = JSON.stringify([metric, curves.map((curve) => [curve.name, curve.colour]), this.colours().ink]);
    if (this.plot && key === this.key) {
      this.plot.setData(data);
      return;
    }
    this.key = key;
    this.plot?.destroy();
    this.plot = curves.length ? new uPlot(this.options(metric, curves), data, this.container) : null;
  }

  options(metric, curves) {
    const { muted, line } = this.colours();
    const axis = { stroke: muted, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    return {
      ...this.size(),
      scales: { x: { time: false } },
      axes: [{ ...axis, label: "step", labelSize: 22 }, { ...axis, label: metric, size: 64, labelSize: 22 }],
      series: [
        { label: "step" },
        ...curves.map((curve) => ({
          label: curve.name, stroke: curve.colour, width: 2, dash: curve.dash, spanGaps: true,
          points: { show: curve.values.length < 2 },
          value: (_, number) => number?.toPrecision(4) ?? "–",
        })),
      ],
    };
  }
}
