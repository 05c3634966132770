"use strict";
// The list of runs: rows that arrive from the server, filtered, grouped, sorted, and ticked.

const rows = new Map(); // what is known of each run, by its key
const items = new Map(); // where it is on the page
const ticked = new Set();
const tickListeners = []; // called when other runs are ticked
const rowListeners = []; // called with the keys of rows that have changed
let complete = false; // all runs have been read once

const byId = (id) => document.getElementById(id);
const make = (name, className, text, parent) => {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
};
const whole = (value) => Math.round(value).toLocaleString("en");
const duration = (seconds) => {
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${String(s % 60).padStart(2, "0")} s`;
  return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")} min`;
};
const goesOn = (row) => row.status === "running" || row.status === "starting";
const chosenKeys = () => [...rows.keys()].filter((key) => ticked.has(key)).sort((a, b) => compareNames(rows.get(a), rows.get(b)));
const compareNames = (a, b) => a.name.localeCompare(b.name, "en", { numeric: true });

const ORDERS = {
  live: (a, b) => goesOn(b) - goesOn(a) || compareNames(a, b),
  name: compareNames,
  score: (a, b) => (b.score ?? -Infinity) - (a.score ?? -Infinity) || compareNames(a, b),
};

const tick = (keys, on) => {
  for (const key of keys) {
    if (on) ticked.add(key);
    else ticked.delete(key);
  }
  showTicks();
  tickListeners.forEach((listener) => listener());
};

const tickOnly = (key) => {
  ticked.clear();
  tick([key], true);
};

const makeItem = (key) => {
  const item = make("li", "run");
  item.dataset.key = key;
  const line = make("div", "line", undefined, item);
  const label = make("label", "", undefined, line);
  const box = make("input", "", undefined, label);
  box.type = "checkbox";
  box.addEventListener("change", () => tick([key], box.checked));
  const parts = { item, box, name: make("span", "", undefined, label) };
  const only = make("button", "only", "only", line);
  only.type = "button";
  only.addEventListener("click", () => tickOnly(key));
  parts.only = only;
  parts.score = make("span", "score", "", line);
  parts.score.title = "mean return: in training while the run goes on, else of the last evaluations";
  parts.badge = make("span", "badge", "", line);
  parts.about = make("div", "about", "", item);
  parts.bar = make("div", "bar", undefined, item);
  parts.fill = make("i", "", undefined, parts.bar);
  items.set(key, parts);
  return parts;
};

const aboutOf = (row) => {
  const facts = [`${row.agent} on ${row.env}`];
  if (row.members > 1) facts.push(`${row.members} members`);
  if (row.step !== null) facts.push(row.total && row.status !== "finished" ? `${whole(row.step)} of ${whole(row.total)}` : `${whole(row.step)} steps`);
  if (row.steps_per_second) facts.push(`${whole(row.steps_per_second)} steps/s`);
  if (row.seconds_left !== null) facts.push(`${duration(row.seconds_left)} left`);
  return facts.join(" · ");
};

const showRow = (key) => {
  const row = rows.get(key);
  const parts = items.get(key) ?? makeItem(key);
  parts.name.textContent = row.name;
  parts.name.title = row.name;
  parts.only.setAttribute("aria-label", `show only ${row.name}`);
  parts.badge.textContent = row.status;
  parts.badge.className = `badge ${row.status}`;
  parts.score.textContent = row.score === null ? "" : row.score.toFixed(1);
  parts.about.textContent = row.agent ? aboutOf(row) : "";
  if (row.problem) make("div", "problem", row.problem, parts.about);
  parts.bar.hidden = !goesOn(row);
  parts.fill.style.width = `${row.total ? Math.min(100, (100 * (row.step ?? 0)) / row.total) : 0}%`;
};

const showTicks = () => {
  for (const [key, parts] of items) {
    parts.box.checked = ticked.has(key);
    parts.item.classList.toggle("on", ticked.has(key));
  }
  for (const box of byId("runs").querySelectorAll("h2 input")) {
    const keys = box.dataset.keys.split(" ");
    const on = keys.filter((key) => ticked.has(key)).length;
    box.checked = on === keys.length;
    box.indeterminate = on > 0 && on < keys.length;
  }
};

let arranged = "";
const arrange = () => {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const by = byId("group").value;
  const fits = (row) => words.every((word) => `${row.name} ${row.agent} ${row.env} ${row.status}`.toLowerCase().includes(word));
  const order = ORDERS[byId("sort").value];
  const keys = [...rows.keys()].filter((key) => fits(rows.get(key))).sort((a, b) => order(rows.get(a), rows.get(b)));
  const groups = new Map();
  for (const key of keys) {
    const title = by ? rows.get(key)[by] || "unknown" : "";
    groups.set(title, [...(groups.get(title) ?? []), key]);
  }
  showCounts(keys.length);
  const now = JSON.stringify([...groups]);
  if (now === arranged) return;
  arranged = now;
  const place = byId("runs");
  const focused = document.activeElement;
  const scrolled = place.scrollTop;
  place.replaceChildren();
  for (const [title, own] of groups) {
    if (by) {
      const head = make("h2", "", undefined, place);
      const label = make("label", "line", undefined, head);
      const box = make("input", "", undefined, label);
      box.type = "checkbox";
      box.dataset.keys = own.join(" ");
      box.addEventListener("change", () => tick(own, box.checked));
      make("span", "", ` ${title} (${own.length})`, label);
    }
    const list = make("ul", "", undefined, place);
    list.append(...own.map((key) => items.get(key).item));
  }
  place.scrollTop = scrolled;
  if (place.contains(focused)) focused.focus({ preventScroll: true });
  showTicks();
};

const showCounts = (shown) => {
  const counts = {};
  for (const row of rows.values()) counts[row.status] = (counts[row.status] ?? 0) + 1;
  const parts = Object.entries(counts).map(([status, count]) => `${count} ${status}`);
  const all = `${rows.size} ${rows.size === 1 ? "run" : "runs"}`;
  const some = shown === rows.size ? all : `${shown} of ${all}`;
  const none = complete ? "There is no run in this folder yet; rows appear here as soon as one begins." : "Reading the runs ...";
  byId("counts").textContent = rows.size ? `${some}: ${parts.join(", ")}` : none;
};

const receive = (message) => {
  complete ||= message.whole;
  for (const key of message.gone) {
    rows.delete(key);
    items.get(key)?.item.remove();
    items.delete(key);
    ticked.delete(key);
  }
  for (const [key, row] of Object.entries(message.rows)) {
    rows.set(key, row);
    showRow(key);
  }
  arrange();
  rowListeners.forEach((listener) => listener(new Set([...Object.keys(message.rows), ...message.gone])));
};

const listen = () => {
  const source = new EventSource("/events");
  const say = (text, name) => {
    byId("live").textContent = text;
    byId("live").className = name;
  };
  let first = true;
  source.onopen = () => say("live", "on");
  source.onerror = () => {
    first = true;
    say("not connected", "off");
  };
  source.onmessage = (event) => {
    const message = JSON.parse(event.data);
    if (first) message.gone = [...rows.keys()].filter((key) => !(key in message.rows)); // what has gone meanwhile
    first = false;
    receive(message);
  };
  window.addEventListener("pagehide", () => source.close());
};

for (const id of ["filter", "group", "sort"]) byId(id).addEventListener("input", arrange);
