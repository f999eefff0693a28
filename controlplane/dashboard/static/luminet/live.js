// One socket for the page. Relays every message as an event on <body> and says honestly how old the page is.
import { ageText } from "./time.js";

const STALE_AFTER_SECONDS = 10;
const LONGEST_WAIT_MS = 10000;
const ASK_EVERY_MS = 5000;
const SIGNED_OUT = 4401;

const label = document.querySelector("[data-live]");
let seq = Number(label?.dataset.seq ?? 0);
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
  if (message.seq <= seq) return;
  seq = message.seq;
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
  const age = heardAt === null ? null : (Date.now() - heardAt) / 1000;
  const stale = age === null || age > STALE_AFTER_SECONDS;
  label.classList.toggle("live--off", age === null);
  label.classList.toggle("live--stale", age !== null && stale);
  label.textContent = age === null ? "Connecting" : `${stale ? "Stale" : "Live"} · ${ageText(age)}`;
  if (stale && age !== null) ask();
}

if (label) {
  // Screen readers hear the state once, not every second.
  label.removeAttribute("role");
  show();
  setInterval(show, 1000);
  connect();
}
