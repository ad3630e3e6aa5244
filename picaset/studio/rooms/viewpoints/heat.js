// Draws an image with its attention as a heat map; places with less than uniform attention stay grey.

const STOPS = [[20, 11, 52], [87, 16, 110], [188, 55, 84], [249, 142, 9], [252, 255, 164]];

function colourOf(share) {
  const place = share * (STOPS.length - 1);
  const lower = Math.min(Math.floor(place), STOPS.length - 2);
  const mixed = STOPS[lower].map((value, index) => Math.round(value + (place - lower) * (STOPS[lower + 1][index] - value)));
  return `rgb(${mixed.join(" ")}`;
}

// Draws the central `shown` of `whole` pixels; the heat map covers the central `crop`.
export function drawHeat(canvas, { picture, heat, heatLimit, crop, whole, shown = whole, frame = "" }) {
  const size = Math.round((canvas.clientWidth || 64) * Math.min(devicePixelRatio || 1, 2));
  if (canvas.width !== size) canvas.width = canvas.height = size;
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, size, size);
  if (!picture) return;
  const scale = size / shown;
  context.imageSmoothingQuality = "high";
  const unit = picture.width / whole; // the page may show more pixels than the networks see
  context.drawImage(picture, unit * (whole - shown) / 2, unit * (whole - shown) / 2, unit * shown, unit * shown, 0, 0, size, size);
  const [edge, extent] = [((shown - crop) / 2) * scale, crop * scale];
  if (heat?.length) {
    const side = Math.round(Math.sqrt(heat.length));
    const each = extent / side;
    heat.forEach((value, place) => {
      const share = Math.min(1, Math.max(0, (value - 1) / (heatLimit - 1)));
      if (share === 0) return;
      context.fillStyle = `${colourOf(share)} / ${(0.85 * share).toFixed(3)})`;
      context.fillRect(edge + (place % side) * each, edge + Math.floor(place / side) * each, each, each);
    });
  }
  if (frame) {
    context.strokeStyle = frame;
    context.lineWidth = Math.max(1, size / 300);
    context.setLineDash([size / 60, size / 75]);
    context.strokeRect(edge, edge, extent, extent);
    context.setLineDash([]);
  }
}

// Returns the map of one head or, after the last head, the mean of all.
export function selectHead(heads, head) {
  if (head < heads.length) return heads[head];
  return heads[0].map((_, place) => heads.reduce((sum, map) => sum + map[place], 0) / heads.length);
}
