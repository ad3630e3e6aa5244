// The colours of the current theme, for drawing on a canvas.

export function readColours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  return {
    ink: read("--ink"), muted: read("--muted"), line: read("--line"), surface: read("--surface"),
    sunken: read("--sunken"), accent: read("--accent"), bad: read("--bad"),
    components: Array.from({ length: 8 }, (_, index) => read(`--c${index}`)),
  };
}
