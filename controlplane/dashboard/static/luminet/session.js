// Checks, before a form is sent, that the page's account is still signed in. If not, a dialog signs it in, and the page
// keeps all input. A form is sent only when the user presses its button.
const FRESH_MS = 30000; // the account was confirmed so recently that no check is needed
const SIGN_IN = ".alone form:has([name=password])"; // on the sign-in page
const TOKENS = "[name=csrfmiddlewaretoken]";
const { account, check } = document.body.dataset;
const dialog = document.querySelector("#sign-in");
const panel = dialog.querySelector("#sign-in-form");
let confirmedAt = Date.now();
let isChecking = false;
let isSigningIn = false;

document.addEventListener("submit", async (event) => {
  const { target: form, submitter } = event;
  if (!form.matches("main form[method=post]") || isFresh()) return;
  event.preventDefault();
  if (isChecking) return;
  isChecking = true;
  const page = await load(check);
  isChecking = false;
  if (!page?.body.dataset.account) return ask(page); // signed out, or the server does not answer
  if (!form.isConnected) document.body.append(form); // its part of the page was swapped meanwhile
  // Without a new token the server refuses the form, as it should if another account has signed in.
  if (page.body.dataset.account === account) renew(page);
  send(form, submitter);
});

document.addEventListener("click", async (event) => {
  if (!event.target.closest("[data-sign-in]")) return;
  event.preventDefault();
  proceed(await load(check));
});

panel.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (isSigningIn) return;
  isSigningIn = true;
  let page = await load(event.target.action, { method: "POST", body: new URLSearchParams(new FormData(event.target)) });
  if (page && !page.body.dataset.account && !page.querySelector(SIGN_IN)) page = await load(check); // the form's token was old
  isSigningIn = false;
  proceed(page);
});

dialog.addEventListener("close", () => panel.replaceChildren()); // no password stays in it

// Return whether the account was confirmed moments ago and no part of the page says that its session has ended.
function isFresh() {
  return Date.now() - confirmedAt < FRESH_MS && !document.querySelector("#access-ended, main [data-sign-in]");
}

async function load(address, request) {
  try {
    const answer = await fetch(address, request);
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch {
    return null;
  }
}

function send(form, submitter) {
  const pressed = document.createElement("input");
  Object.assign(pressed, { type: "hidden", name: submitter?.name ?? "", value: submitter?.value ?? "" });
  form.append(pressed);
  form.submit();
  pressed.remove();
}

function renew(page) {
  confirmedAt = Date.now();
  const { value } = page.querySelector(TOKENS);
  for (const token of document.querySelectorAll(TOKENS)) token.value = value;
}

function proceed(page) {
  const signedIn = page?.body.dataset.account;
  if (signedIn === account) resume(page);
  else if (signedIn) location.replace(document.querySelector(".brand").href); // another account may not see this page
  else ask(page);
}

function ask(page) {
  const form = page?.querySelector(SIGN_IN);
  dialog.querySelector("[role=alert]").hidden = Boolean(form);
  dialog.querySelector("[data-ended]").hidden = !form;
  if (form) panel.replaceChildren(form);
  if (!dialog.open) dialog.showModal();
  panel.querySelector("[autofocus]")?.focus();
}

function resume(page) {
  renew(page);
  dialog.close();
  revive();
  document.querySelector("#access-ended")?.remove();
  const note = document.querySelector("#signed-in") ?? document.createElement("p");
  Object.assign(note, { id: "signed-in", className: "note note--ok", textContent: "You are signed in again. Nothing was sent: press the button again." });
  note.setAttribute("role", "status");
  document.querySelector("main").prepend(note);
  document.querySelector("form[hx-post]")?.dispatchEvent(new Event("change")); // its preview missed the latest input
}

// Restart the polling of parts that stopped when the session ended, and reconnect the page.
function revive() {
  for (const link of document.querySelectorAll("main [data-sign-in]")) {
    const part = link.closest("[hx-get]");
    link.closest(".note").remove();
    if (!part) continue;
    const fresh = part.cloneNode(true); // a clone lacks htmx's mark that its polling has ended
    part.replaceWith(fresh);
    htmx.process(fresh);
  }
  document.body.dispatchEvent(new CustomEvent("luminet:signed-in"));
  document.body.dispatchEvent(new CustomEvent("luminet:stale"));
}
