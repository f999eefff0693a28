// The sockets of the page, one for each path in its data-live. Dispatches every message as an event on <body> and shows
// the age of the page. A message may repeat after a reconnection; listeners must tolerate duplicates.
import { ageText } from "./time.js";

const STALE_AFTER_SECONDS = 10;
const LONGEST_WAIT_MS = 10000;
const FIRST_WAIT_MS = 500;
const ASK_EVERY_MS = 5000;
const SIGNED_OUT = 4401;
const ACCESS_ENDED = [4403, 4404];
// The data that a message updates: a pulse proves that the control plane is alive and carries no numbers.
const NEWS = { stats: "numbers", still: "numbers", pulse: "pulse" };

const label = document.querySelector("[data-live]");
const spoken = document.querySelector("[data-live-word]");
const needed = label?.dataset.needs.split(" "); // the data that the page shows and so must receive
const openedAt = Date.now();
const lines = new Map();
let askedAt = 0;

function open(path) {
  lines.set(path, { seq: Number(label.dataset.seq), heardAt: null, newsAt: {}, wait: FIRST_WAIT_MS });
  // Connect once all scripts of the page listen, so that each of them gets the first message.
  document.addEventListener("DOMContentLoaded", () => connect(path));
}

function connect(path) {
  const line = lines.get(path);
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const socket = new WebSocket(`${scheme}://${location.host}${path}?since=${line.seq}`);
  socket.addEventListener("message", (event) => receive(path, JSON.parse(event.data)));
  socket.addEventListener("close", (event) => {
    // Access has ended after a successful connection: a reload shows what the user may still see.
    if (event.code === SIGNED_OUT || (ACCESS_ENDED.includes(event.code) && line.heardAt !== null)) {
      if (!isTyped()) return location.reload();
      ended(event.code);
      line.isEnded = event.code === SIGNED_OUT;
      return;
    }
    // Jitter keeps a thousand pages from reconnecting at the same instant.
    setTimeout(connect, line.wait * (0.5 + Math.random()), path);
    line.wait = Math.min(line.wait * 2, LONGEST_WAIT_MS);
  });
}

// Reconnect after the user has signed in again in the dialog of session.js.
function reconnect() {
  for (const [path, line] of lines) {
    if (!line.isEnded) continue;
    line.isEnded = false;
    connect(path);
  }
}

// Return whether the page has unsent input, which a reload would lose.
function isTyped() {
  if (document.querySelector("[data-typed]")) return true; // the server filled it in
  return [...document.querySelectorAll("main form[method=post] :is(input, textarea, select)")].some((one) => {
    if (one.type === "hidden") return false;
    if (one.type === "checkbox" || one.type === "radio") return one.checked !== one.defaultChecked;
    if (one.options) return ![...one.options].every((option, place) => option.selected === (option.defaultSelected || (place === 0 && !one.querySelector("[selected]"))));
    return one.value !== one.defaultValue;
  });
}

function ended(code) {
  document.querySelector("#signed-in")?.remove();
  if (document.querySelector("#access-ended")) return;
  const note = document.createElement("p");
  note.id = "access-ended";
  note.className = "note note--warn";
  note.setAttribute("role", "alert");
  note.textContent =
    code === SIGNED_OUT
      ? "Your session has ended. What you typed is still here: send it, and you are asked to sign in first."
      : "This is not there, or not yours to see any more. What you typed is still here to copy.";
  document.querySelector("main").prepend(note);
}

function receive(path, message) {
  const line = lines.get(path);
  line.heardAt = Date.now();
  line.newsAt[NEWS[message.type]] = line.heardAt;
  line.wait = FIRST_WAIT_MS;
  line.seq = Math.max(line.seq, message.seq);
  show();
  document.body.dispatchEvent(new CustomEvent(`luminet:${message.type}`, { detail: { ...message, path } }));
}

// Return the age of such data: since its last message on that socket, or else since the page opened.
export function secondsSince(path, news = "numbers") {
  return (Date.now() - (lines.get(path)?.newsAt[news] ?? openedAt)) / 1000;
}

export function isStale(path, news = "numbers") {
  return secondsSince(path, news) > STALE_AFTER_SECONDS;
}

// While data is stale, let the parts of the page poll, so that they can show what is wrong.
function ask() {
  if (Date.now() - askedAt < ASK_EVERY_MS) return;
  askedAt = Date.now();
  document.body.dispatchEvent(new CustomEvent("luminet:stale"));
}

// The page is as old as its oldest data.
function show() {
  const paths = [...lines.keys()];
  const age = Math.max(...paths.flatMap((path) => needed.map((news) => secondsSince(path, news))));
  const stale = age > STALE_AFTER_SECONDS;
  const word = stale ? "Stale" : paths.some((path) => lines.get(path).heardAt === null) ? "Connecting" : "Live";
  label.classList.toggle("live--off", word === "Connecting");
  label.classList.toggle("live--stale", stale);
  label.textContent = word === "Connecting" ? word : `${word} · ${ageText(age)}`;
  document.body.classList.toggle("is-stale", stale);
  // Screen readers announce the word when it changes, but not the seconds.
  if (spoken.textContent !== word) spoken.textContent = word;
  if (stale) ask();
}

// The server does not answer, so the headline must not claim that the state shown is current.
function lost() {
  const headline = document.querySelector("#headline");
  if (!headline) return;
  headline.querySelector("h1, [data-headline]").textContent = "This page has lost its server";
  headline.querySelector("span:not([data-headline])").textContent = "It shows what was true last, tries again by itself, and loses nothing.";
}

if (label) {
  document.body.addEventListener("htmx:sendError", lost);
  document.body.addEventListener("htmx:responseError", lost);
  document.body.addEventListener("luminet:signed-in", reconnect);
  label.dataset.live.split(" ").forEach(open);
  show();
  setInterval(show, 1000);
}
