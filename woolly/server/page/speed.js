// A picture of an answer's speed: tokens a second, over the time it took.

const WIDTH = 96;
const HEIGHT = 18;
const PARTS = 24;
const SPACE = "http://www.w3.org/2000/svg";

// `times`: when each piece came, in milliseconds. Null where there is too little to see.
export function picture(times) {
  const took = times.at(-1) - times[0];
  if (times.length < 8 || took < 200) return null;
  const parts = new Array(PARTS).fill(0);
  for (const time of times.slice(1)) parts[Math.min(Math.floor(((time - times[0]) / took) * PARTS), PARTS - 1)]++;
  const most = Math.max(...parts);
  const points = parts.map((count, i) => `${((i * WIDTH) / (PARTS - 1)).toFixed(1)},${(HEIGHT - 1 - (count / most) * (HEIGHT - 2)).toFixed(1)}`);
  const svg = document.createElementNS(SPACE, "svg");
  const line = document.createElementNS(SPACE, "polyline");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("class", "speed");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `Speed: up to ${((most * PARTS * 1000) / took).toFixed(0)} pieces a second`);
  line.setAttribute("points", points.join(" "));
  svg.append(line);
  return svg;
}
