// The charts of a page, drawn from the page's data (charts.py) in the page's colours. Without this script, the table
// behind each chart shows the same data.
/* global uPlot */

const HEIGHT = 240;
const NARROW_HEIGHT = 280;
const NARROW = 480;
const LABEL_SPACE = 44;
const KIB = 1024;
const CLOCK_STEPS = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600, 43200, 86400, 172800, 604800];
const LEAST_TOP = { percent: 5, milliseconds: 10, count: 5, bytes: KIB, seconds: 1 };
const DURATIONS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
const minutes = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });
const days = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const amounts = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 1 });

function bytesText(value) {
  let size = value;
  for (const name of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(size) < KIB) return `${amounts.format(size)} ${name}`;
    size /= KIB;
  }
  return `${amounts.format(size)} TiB`;
}

const TEXTS = {
  percent: (value) => `${amounts.format(value)} %`,
  milliseconds: (value) => `${amounts.format(value)} ms`,
  seconds: (value) => `${amounts.format(value)} s`,
  count: (value) => amounts.format(value),
  bytes: bytesText,
};

function durationText(seconds) {
  const [size, name] = DURATIONS.find(([one]) => seconds >= one && seconds % one === 0) ?? DURATIONS.at(-1);
  return `${amounts.format(seconds / size)} ${name}`;
}

function timeText(seconds, span) {
  const at = new Date(seconds * 1000);
  return span > 2 * 86400 ? days.format(at) : minutes.format(at);
}

function colour(box, name) {
  // light-dark() resolves only where it is used, so ask an element that uses it.
  const probe = document.createElement("span");
  probe.className = `ink-${name}`;
  box.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

function size(box) {
  return { width: box.clientWidth, height: box.clientWidth < NARROW ? NARROW_HEIGHT : HEIGHT };
}

function markLines(told, ink) {
  return (chart) => {
    const { ctx, bbox } = chart;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = ink;
    ctx.setLineDash([4, 4]);
    ctx.font = `${11 * devicePixelRatio}px system-ui`;
    for (const { at, label } of told.marks) {
      // Draw marks newer than the last point at the right edge.
      const x = Math.min(Math.round(chart.valToPos(at, "x", true)), bbox.left + bbox.width);
      if (x < bbox.left) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      const hasRoom = x + 4 + ctx.measureText(label).width <= bbox.left + bbox.width;
      ctx.textAlign = hasRoom ? "left" : "right";
      ctx.fillText(label, hasRoom ? x + 4 : x - 4, bbox.top + 12 * devicePixelRatio);
    }
    ctx.restore();
  };
}

// Skip labels that have no room beside the previous one.
function durationTicks(chart, ticks) {
  let last = -Infinity;
  return ticks.map((tick) => {
    const at = chart.valToPos(tick, "x");
    if (at - last < LABEL_SPACE) return "";
    last = at;
    return durationText(tick);
  });
}

function axes(told, box) {
  const axis = { stroke: colour(box, "muted"), grid: { stroke: colour(box, "hairline"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  const across = told.across === "time"
    ? { ...axis, space: 64, incrs: CLOCK_STEPS, size: 32, values: (chart, ticks) => ticks.map((tick) => timeText(tick, told.xs.at(-1) - told.xs[0])) }
    : { ...axis, space: 56, size: 32, splits: () => told.xs, filter: (_, ticks) => ticks, values: durationTicks };
  return [across, { ...axis, size: 64, values: (_, ticks) => ticks.map(TEXTS[told.unit]) }];
}

function top(told) {
  return (_, low, high) => {
    const most = Math.max(LEAST_TOP[told.unit], (high ?? 0) * 1.15);
    return [0, told.unit === "percent" ? Math.min(100, most) : most];
  };
}

// A point without neighbours makes no line, so draw it as a dot.
function lonePoints(values) {
  return values.flatMap((value, at) => (value !== null && (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null ? [at] : []));
}

function draw(box, told) {
  const muted = colour(box, "muted");
  const lines = told.series.map((one) => {
    const ink = colour(box, `series-${one.tone}`);
    return { label: one.label, stroke: ink, width: 2, dash: one.dashed ? [6, 4] : undefined, points: { show: true, filter: () => lonePoints(one.values) }, spanGaps: false };
  });
  const x = told.across === "time" ? { time: false } : { time: false, distr: 3 };
  return new uPlot(
    {
      ...size(box),
      legend: { show: false },
      cursor: { y: false },
      scales: { x, y: { range: top(told) } },
      axes: axes(told, box),
      series: [{}, ...lines],
      hooks: { draw: [markLines(told, muted)] },
    },
    [told.xs, ...told.series.map((one) => one.values)],
    box,
  );
}

// Draw the charts that are new. A part swapped in brings its charts; charts of a part swapped out are left alone.
function drawAll(root) {
  for (const box of root.querySelectorAll("[data-series]:not([data-drawn])")) {
    const told = JSON.parse(box.dataset.told);
    if (!told.xs.length) continue;
    box.dataset.drawn = "yes";
    let chart = draw(box, told);
    new ResizeObserver(() => box.isConnected && chart.setSize(size(box))).observe(box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      if (!box.isConnected) return;
      chart.destroy();
      chart = draw(box, told);
    });
  }
}

drawAll(document);
document.body.addEventListener("htmx:afterSwap", () => drawAll(document));
