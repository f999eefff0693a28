// The tiles of the last 24 hours: first as the server renders them, then updated by their sockets. The wording is that
// of controlplane/dashboard/frame/tiles.py; tests/e2e/test_tiles.py compares the two.
import { isStale, secondsSince } from "./live.js";
import { ageText } from "./time.js";

const SPOKEN_EVERY_MS = 60000;
const LEAST_POINTS = 0.05;
const LEAST_REQUESTS = 20; // fewer are too few for a rate
const DAYS_FROM = 2 * 86400;
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
const tiles = document.querySelectorAll("[data-tile]");
const amounts = new Intl.NumberFormat("en-GB");

function part(tile, name) {
  return tile.querySelector(`[data-tile-${name}]`);
}

function text(element, words) {
  if (element.textContent !== words) element.textContent = words;
}

function durationText(seconds) {
  const words = [];
  for (const [size, name] of seconds >= DAYS_FROM ? UNITS : UNITS.slice(1)) {
    const count = Math.floor(seconds / size);
    seconds -= count * size;
    if (count) words.push(`${count} ${name}`);
  }
  return words.join(" ") || "0 s";
}

// Round down, as in the header x-luminet-cache-hit: only a complete hit reads 100.
function rateText({ cached_tokens: cached, prompt_tokens: prompt }) {
  const tenths = Math.floor((cached * 1000) / prompt);
  return prompt ? `${Math.floor(tenths / 10)}.${tenths % 10}` : "–";
}

function measuredText({ covered_seconds: covered, window_seconds: whole }) {
  if (covered >= whole) return durationText(whole);
  return `${durationText(covered < 60 ? covered : covered - (covered % 60))} of ${durationText(whole)}`;
}

// Compare only with a day that was counted completely, and only with enough requests.
function change({ hit_ratio: now, hit_ratio_before: before, ...told }) {
  const whole = told.covered_seconds_before >= told.window_seconds;
  if (now === null || before === null || !whole || told.requests < LEAST_REQUESTS) return ["none", "", "", "", ""];
  const points = (now - before) * 100;
  if (Math.abs(points) < LEAST_POINTS) return ["none", "", "", "", "the same as the day before"];
  const [tone, arrow] = points > 0 ? ["up", "▲"] : ["down", "▼"];
  return [tone, arrow, tone, `${Math.abs(points).toFixed(1)} points`, "against the day before"];
}

function nounText(requests) {
  return `request${requests === 1 ? "" : "s"}${requests < LEAST_REQUESTS ? " so far" : ""}`;
}

function factText(message) {
  const { requests } = message;
  if (requests < LEAST_REQUESTS || !message.prompt_tokens) {
    return requests ? `${amounts.format(requests)} ${nounText(requests)}` : "";
  }
  const [, , way, points] = change(message);
  return `Hit rate ${rateText(message)} %${points ? `, ${way} ${points}` : ""}`;
}

function showChange(tile, message) {
  const [tone, arrow, way, points, words] = change(message);
  part(tile, "delta").className = `delta delta--${tone}`;
  text(part(tile, "arrow"), arrow);
  text(part(tile, "way"), way);
  text(part(tile, "points"), points);
  text(part(tile, "against"), words);
}

// On a page with one tile, its fact is the headline and the title of the tab.
function showFact(tile, message) {
  const headline = document.querySelector("[data-fact]");
  const words = factText(message);
  if (headline?.dataset.fact !== tile.dataset.tile || !words) return;
  text(headline, words);
  const said = document.title.startsWith("Error: ") ? "Error: " : ""; // of a refused form that the page still shows
  document.title = `${said}${words} · Luminet`;
}

function showValue(tile, message) {
  const isEmpty = !message.requests;
  part(tile, "value").classList.toggle("hero__value--none", message.requests < LEAST_REQUESTS);
  text(part(tile, "rate"), rateText(message));
  if (isEmpty) part(tile, "shown").setAttribute("aria-hidden", "true");
  else part(tile, "shown").removeAttribute("aria-hidden");
  text(part(tile, "none"), isEmpty ? "no value yet" : "");
  part(tile, "share").value = Math.floor((message.cached_tokens * 1000) / Math.max(1, message.prompt_tokens));
}

function move(tile, message) {
  if (message.seq < Number(tile.dataset.seq)) return; // repeated after a reconnection
  tile.dataset.seq = message.seq;
  showValue(tile, message);
  showChange(tile, message);
  showFact(tile, message);
  text(part(tile, "measured"), measuredText(message));
  text(part(tile, "requests"), amounts.format(message.requests));
  text(part(tile, "noun"), nounText(message.requests));
  text(part(tile, "prompt"), amounts.format(message.prompt_tokens));
  text(part(tile, "saved"), amounts.format(message.saved_tokens));
  part(tile, "counted").hidden = !message.requests;
  part(tile, "next").hidden = Boolean(message.requests);
  speak(tile, message);
}

// Screen readers announce a change of a whole percent, at most once a minute.
function speak(tile, message) {
  if (!message.prompt_tokens || Date.now() - Number(tile.dataset.spokenAt ?? 0) < SPOKEN_EVERY_MS) return;
  const percent = Math.floor((message.cached_tokens * 100) / message.prompt_tokens);
  if (tile.dataset.spoken === String(percent)) return;
  if (tile.dataset.spoken !== undefined) text(part(tile, "said"), `Hit rate of 24 hours: ${percent} percent`);
  tile.dataset.spoken = percent;
  tile.dataset.spokenAt = Date.now();
}

function age(tile) {
  const stale = isStale(tile.dataset.tile);
  tile.classList.toggle("is-stale", stale);
  text(part(tile, "age"), `${ageText(secondsSince(tile.dataset.tile))}${stale ? ", stale" : ""}`);
}

function ages() {
  tiles.forEach(age);
}

document.body.addEventListener("luminet:stats", ({ detail }) => {
  for (const tile of tiles) if (tile.dataset.tile === detail.path) move(tile, detail);
  ages();
});
document.body.addEventListener("luminet:still", ages);
ages();
setInterval(ages, 1000);
