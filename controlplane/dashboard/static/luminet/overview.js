// The chart of round trips: drawn from the page's data, updated by the socket.
/* global uPlot */
import { clockText } from "./time.js";

const WINDOW_SECONDS = 600;
const GAP_SECONDS = 7;
const HEIGHT = 220;
const NARROW_HEIGHT = 260;

const box = document.querySelector('[data-chart="pulse"]');
const points = JSON.parse(document.getElementById("pulse-points").textContent);
let chart;

// Break the line where pulses are missing; a straight line across would be invented data.
function columns() {
  const times = [], values = [];
  for (const [at, ms] of points) {
    const last = times.at(-1);
    if (last !== undefined && at - last > GAP_SECONDS) {
      times.push((last + at) / 2);
      values.push(null);
    }
    times.push(at);
    values.push(ms);
  }
  return [times, values];
}

function colour(name) {
  // light-dark() resolves only where it is used, so ask an element that uses it.
  const probe = document.createElement("span");
  probe.className = `ink-${name}`;
  box.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

const minutes = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });

function clockMinute(seconds) {
  return minutes.format(new Date(seconds * 1000));
}

function size() {
  return { width: box.clientWidth, height: box.clientWidth < 480 ? NARROW_HEIGHT : HEIGHT };
}

function draw() {
  chart?.destroy();
  const axis = { stroke: colour("muted"), grid: { stroke: colour("hairline"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  chart = new uPlot(
    {
      ...size(),
      legend: { show: false },
      cursor: { y: false },
      scales: {
        x: { range: () => { const now = Date.now() / 1000; return [now - WINDOW_SECONDS, now]; } },
        y: { range: (_, low, high) => [0, Math.max(10, high * 1.15)] },
      },
      axes: [{ ...axis, space: 90, values: (_, ticks) => ticks.map(clockMinute) }, { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => `${tick} ms`) }],
      series: [{}, { stroke: colour("line"), width: 1.5, fill: colour("area"), points: { show: false }, spanGaps: false }],
    },
    columns(),
    box,
  );
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

function text(selector, value) {
  document.querySelector(selector).textContent = value;
}

function add({ at, ms }) {
  if (points.some((point) => point[0] === at)) return; // repeated after a reconnection
  points.push([at, ms]);
  points.sort((a, b) => a[0] - b[0]); // a missed pulse may be older than the last one
  while (points[0][0] < points.at(-1)[0] - WINDOW_SECONDS) points.shift();
  const values = points.map((point) => point[1]);
  text("[data-median]", median(values).toFixed(1));
  text("[data-count]", values.length);
  text("[data-slowest]", Math.max(...values).toFixed(1));
  chart.setData(columns());
  addRow(at, ms);
}

function addRow(at, ms) {
  const rows = document.querySelector("[data-rows]");
  if (rows.querySelector("td[colspan]")) rows.replaceChildren();
  const newer = points.filter((point) => point[0] > at).length;
  const row = rows.insertRow(Math.min(newer, rows.rows.length));
  row.insertCell().textContent = clockText(at * 1000);
  const value = row.insertCell();
  value.className = "num";
  value.textContent = ms.toFixed(1);
  while (rows.rows.length > points.length) rows.deleteRow(-1);
}

draw();
document.body.addEventListener("luminet:pulse", (event) => add(event.detail));
document.body.addEventListener("luminet:stale", () => chart.setData(columns())); // the right edge is the current time
new ResizeObserver(() => chart.setSize(size())).observe(box);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
