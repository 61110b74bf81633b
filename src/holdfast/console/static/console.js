// Keys, theme, pausing and morphing. No key acts on the ledger; without this script every page works by reload.
"use strict";
(() => {
  const base = document.body.dataset.base || "";
  const pages = { o: "/", j: "/jobs", f: "/failures", q: "/queues", w: "/workers", r: "/replays" };
  let paused = false;
  let afterG = 0;
  let row = -1;

  // Morphing must not close <details> or empty the field that is being typed into.
  if (window.Idiomorph) {
    Idiomorph.defaults.ignoreActiveValue = true;
    Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) =>
      !(name === "open" && node.tagName === "DETAILS") && !(name === "class" && node.tagName === "TR")
      && name !== "aria-current";
  }
  document.body.addEventListener("htmx:beforeRequest", (event) => { if (paused) event.preventDefault(); }); // a tick
  const here = document.querySelector("nav [aria-current]"); // on a phone the navigation is one line that scrolls
  if (here) here.parentElement.scrollIntoView({ block: "nearest", inline: "center" });
  document.body.addEventListener("htmx:sseBeforeMessage", (event) => { if (paused) event.preventDefault(); });
  document.body.addEventListener("htmx:sseError", () => mark("stale"));

  function mark(state) {
    const live = document.getElementById("live");
    if (live) live.classList.toggle(state, true);
  }
  function pause() {
    const live = document.getElementById("live");
    if (!live || live.classList.contains("still")) return;
    paused = !paused;
    live.classList.toggle("paused", paused);
    live.querySelector("span:not(.dot)").firstChild.textContent = paused ? "paused · " : "live · ";
  }
  function rows() { return [...document.querySelectorAll("table.rows tbody tr")]; }
  function move(step) {
    const all = rows();
    if (!all.length) return;
    all.forEach((one) => one.classList.remove("at"));
    row = Math.max(0, Math.min(all.length - 1, row + step));
    all[row].classList.add("at");
    all[row].scrollIntoView({ block: "nearest" });
  }
  function link() { const all = rows(); return row >= 0 && all[row] ? all[row].querySelector("a") : null; }
  function follow(selector) { const found = document.querySelector(selector); if (found) found.click(); }
  function copy() {
    const command = document.querySelector("[data-copy]");
    if (!command || !navigator.clipboard) return;
    navigator.clipboard.writeText(command.textContent.trim()).then(() => {
      command.setAttribute("data-copied", "");
      setTimeout(() => command.removeAttribute("data-copied"), 1500);
    }, () => {});
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.closest("input, textarea, select");
    const help = document.getElementById("help");
    if (event.key === "Escape") {
      if (help && help.open) return;
      if (typing) typing.blur();
      else if (document.querySelector("[data-cancel]")) follow("[data-cancel]");
      else if (history.length > 1) history.back();
      return;
    }
    if (typing || (help && help.open)) return;
    if (afterG && Date.now() - afterG < 1500 && pages[event.key]) {
      afterG = 0;
      location.assign(base + pages[event.key]);
      return;
    }
    afterG = 0;
    switch (event.key) {
      case "/": event.preventDefault(); document.getElementById("q")?.focus(); break;
      case "?": help?.showModal(); break;
      case ".": pause(); break;
      case "g": afterG = Date.now(); break;
      case "j": move(1); break;
      case "k": move(-1); break;
      case "Enter": if (event.target === document.body || event.target.id === "main") link()?.click(); break;
      case "[": follow("a[rel=prev]"); break;
      case "]": follow("a[rel=next]"); break;
      case "e": { const to = link(); if (to && to.pathname.includes("/jobs/")) location.assign(to.href); break; }
      case "c": copy(); break;
      default:
    }
  });

  const toggle = document.querySelector("[data-theme-toggle]");
  if (toggle) {
    toggle.hidden = false;
    const dark = () => getComputedStyle(document.documentElement).colorScheme === "dark"
      || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    const name = () => { toggle.textContent = dark() ? "Light" : "Dark"; };
    toggle.addEventListener("click", () => {
      const theme = dark() ? "light" : "dark";
      document.documentElement.dataset.theme = theme;
      try { localStorage.setItem("holdfast-theme", theme); } catch { /* storage is off */ }
      name();
    });
    name();
  }
  const range = document.querySelector(".asof input[type=range]");
  if (range) {
    const output = range.parentElement.querySelector("output");
    range.addEventListener("input", () => { output.textContent = `${range.value} of ${range.max}`; });
    range.addEventListener("change", () => range.form.requestSubmit());
  }
})();
