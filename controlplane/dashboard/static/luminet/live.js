// One socket for the page. Relays every message as an event on <body> and says honestly how old the page is.
import { ageText } from "./time.js";

const STALE_AFTER_SECONDS = 10;
const LONGEST_WAIT_MS = 10000;
const ASK_EVERY_MS = 5000;
const SIGNED_OUT = 4401;

const label = document.querySelector("[data-live]");
let seq = Number(label?.dataset.seq ?? 0);
const spoken = document.querySelector("[data-live-word]");
const openedAt = Date.now();
let heardAt = null;
let wait = 500;
let askedAt = 0;

function connect() {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const socket = new WebSocket(`${scheme}://${location.host}${label.dataset.live}?since=${seq}`);
  socket.addEventListener("open", () => { wait = 500; });
  socket.addEventListener("message", (event) => receive(JSON.parse(event.data)));
  socket.addEventListener("close", (event) => {
    if (event.code === SIGNED_OUT) {
      location.reload();
      return;
    }
    // A little chance keeps a thousand pages from coming back in the same instant.
    setTimeout(connect, wait * (0.5 + Math.random()));
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  });
}

function receive(message) {
  heardAt = Date.now();
  if ("seq" in message) {
    if (message.seq <= seq) return;
    seq = message.seq;
  }
  show();
  document.body.dispatchEvent(new CustomEvent(`luminet:${message.type}`, { detail: message }));
}

// While nothing comes through the socket the page goes on asking, so that it can say what is wrong.
function ask() {
  if (Date.now() - askedAt < ASK_EVERY_MS) return;
  askedAt = Date.now();
  document.body.dispatchEvent(new CustomEvent("luminet:stale"));
}

function show() {
  const age = (Date.now() - (heardAt ?? openedAt)) / 1000;
  const stale = age > STALE_AFTER_SECONDS;
  const word = stale ? "Stale" : heardAt === null ? "Connecting" : "Live";
  label.classList.toggle("live--off", word === "Connecting");
  label.classList.toggle("live--stale", stale);
  label.textContent = word === "Connecting" ? word : `${word} · ${ageText(age)}`;
  document.body.classList.toggle("is-stale", stale);
  // Screen readers hear the word when it changes, and not the seconds.
  if (spoken.textContent !== word) spoken.textContent = word;
  if (stale) ask();
}

// The server itself does not answer: what the page says of it is then only what was true last.
function lost() {
  const headline = document.querySelector("#headline");
  if (!headline) return;
  headline.querySelector("h1").textContent = "This page has lost its server";
  headline.querySelector("span").textContent = "It shows what was true last, tries again by itself, and loses nothing.";
}

if (label) {
  document.body.addEventListener("htmx:sendError", lost);
  document.body.addEventListener("htmx:responseError", lost);
  show();
  setInterval(show, 1000);
  connect();
}
