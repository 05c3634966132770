"use strict";
// What is shown of the ticked runs.  Figures are drawn by the report's own script, which is loaded before this one.

const tabs = [...document.querySelectorAll("[role=tab]")];
const MOST_FILMS = 12;
const PAUSE = 900; // milliseconds between two questions for the same thing
let tab = "curves";
let asked = new URLSearchParams(location.hash.slice(1));

const query = (keys, more = {}) => {
  const found = new URLSearchParams(more);
  for (const key of keys) found.append("run", key);
  return found.toString();
};

const ask = async (path) => {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
};

const send = async (path, data) => {
  const answer = await fetch(path, { method: "POST", body: JSON.stringify(data) });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
};

const complain = (lines) => byId("problems").replaceChildren(...lines.map((line) => make("p", "", line)));

const legend = (colours) => {
  const place = byId("methods");
  const names = Object.keys(colours);
  if (JSON.stringify(names) === place.dataset.names) return;
  place.dataset.names = JSON.stringify(names);
  place.replaceChildren();
  for (const name of names) {
    const button = make("button", "", undefined, place);
    button.type = "button";
    button.setAttribute("aria-pressed", String(!hidden.has(name)));
    make("i", "", undefined, button).style.background = colours[name];
    button.append(name);
    button.addEventListener("click", () => {
      if (!hidden.delete(name)) hidden.add(name);
      button.setAttribute("aria-pressed", String(!hidden.has(name)));
      redraw();
    });
  }
};

const showCurves = (data) => {
  const place = byId("cards");
  const choice = byId("figure");
  const kinds = JSON.stringify(data.kinds);
  if (choice.dataset.kinds !== kinds) {
    choice.dataset.kinds = kinds;
    choice.replaceChildren(...data.kinds.map(([name, text]) => new Option(text, name)));
  }
  choice.value = data.kind;
  Object.assign(report.colours, data.colours);
  report.figures = data.figures;
  legend(data.colours);
  const layout = JSON.stringify(data.figures.map((figure) => [figure.name, figure.env]));
  if (place.dataset.layout !== layout) {
    place.dataset.layout = layout;
    for (let index = views.length - 1; index >= 0; index -= 1) if (place.contains(views[index].place)) views.splice(index, 1);
    place.innerHTML = data.cards;
    place.querySelectorAll("[data-figure]").forEach(show);
    return;
  }
  for (const view of views) {
    const figure = place.contains(view.place) && data.figures.find((one) => one.id === view.place.dataset.figure);
    if (!figure) continue;
    view.figure = figure;
    view.draw();
  }
};

const showTables = (data) => {
  for (const name of ["evaluation", "settings", "machine"]) {
    const place = byId(name);
    const html = data[name] || "<p class=note>There is nothing to show yet.</p>";
    if (place.dataset.html === html) continue;
    place.dataset.html = html;
    const open = [...place.querySelectorAll("details[open] > summary")].map((one) => one.textContent);
    place.innerHTML = html;
    for (const one of place.querySelectorAll("summary")) if (open.includes(one.textContent)) one.parentElement.open = true;
  }
};

const showConsole = (data) => {
  const place = byId("lines");
  const text = Object.values(data).flat().join("\n");
  if (place.textContent === text) return;
  const atEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 30;
  place.textContent = text;
  if (atEnd) place.scrollTop = place.scrollHeight;
};

const filmCard = (key, row) => {
  const card = make("figure", "card");
  for (const name of row.films.slice(0, 1)) {
    const film = make(name.endsWith(".gif") ? "img" : "video", "", undefined, card);
    film.src = `/film/${key}/${name}?${row.version}`;
    if (name.endsWith(".gif")) film.alt = `${row.agent} playing ${row.env}`;
    else Object.assign(film, { controls: true, loop: true, muted: true });
  }
  make("figcaption", "", `${row.agent} on ${row.env} (${row.name})`, card);
  const button = make("button", "", row.films.length ? "Record anew" : "Record a film", card);
  button.type = "button";
  button.addEventListener("click", async () => {
    button.disabled = true;
    button.textContent = "The agent plays ...";
    try {
      await send("/film", { run: key, member: 0 });
    } catch (error) {
      complain([`${row.name}: ${error.message}`]);
    }
    button.disabled = false;
    button.textContent = "Record anew";
  });
  return card;
};

const showFilms = (keys) => {
  const place = byId("films");
  const now = JSON.stringify(keys.map((key) => [key, rows.get(key).films, goesOn(rows.get(key)) ? 0 : rows.get(key).version]));
  if (place.dataset.now === now) return;
  place.dataset.now = now;
  const grid = make("div", "films");
  grid.append(...keys.slice(0, MOST_FILMS).map((key) => filmCard(key, rows.get(key))));
  place.replaceChildren(grid);
};

// A choice among the ticked runs that stays as it is while they change.
const offer = (select, keys) => {
  const before = select.value;
  const now = JSON.stringify(keys.map((key) => [key, rows.get(key).name]));
  if (select.dataset.now === now) return;
  select.dataset.now = now;
  select.replaceChildren(...keys.map((key) => new Option(rows.get(key).name, key)));
  if (keys.includes(before)) select.value = before;
};

const refreshNow = async () => {
  const keys = chosenKeys();
  byId("empty").hidden = keys.length > 0;
  byId(tab).hidden = keys.length === 0;
  if (!keys.length) return complain([]);
  if (tab === "films") return showFilms(keys);
  if (tab === "agent") {
    offer(byId("agent-run"), keys);
    return offerAgent();
  }
  let data;
  if (tab === "curves") {
    data = await ask(`/curves?${query(keys, { kind: byId("figure").value || "returns" })}`);
    showCurves(data.shown);
  } else if (tab === "console") {
    offer(byId("console-run"), keys);
    data = await ask(`/console?${query([byId("console-run").value])}`);
    showConsole(data.shown);
  } else {
    data = await ask(`/tables?${query(keys)}`);
    showTables(data.shown);
  }
  return complain(data.problems);
};

// One question at a time, and no more than about one in a second: a run that trains beside it has the cores.
let busy = false;
let again = false;
const refresh = async () => {
  again = true;
  if (busy) return;
  busy = true;
  while (again && !document.hidden) {
    again = false;
    try {
      await refreshNow();
    } catch (error) {
      complain([error.message]);
    }
    await new Promise((resolve) => setTimeout(resolve, again ? 0 : PAUSE / 3));
  }
  busy = false;
};

const remember = () => {
  const hash = new URLSearchParams({ tab, runs: [...ticked].join(",") });
  history.replaceState(null, "", `#${hash}`);
};

const choose = (name) => {
  tab = name;
  for (const one of tabs) {
    const on = one.dataset.tab === name;
    one.setAttribute("aria-selected", String(on));
    one.tabIndex = on ? 0 : -1;
    byId(one.dataset.tab).hidden = !on;
  }
  remember();
  refresh().then(redraw);
};

for (const [index, one] of tabs.entries()) {
  one.addEventListener("click", () => choose(one.dataset.tab));
  one.addEventListener("keydown", (event) => {
    const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = tabs[(to + tabs.length) % tabs.length];
    next.focus();
    choose(next.dataset.tab);
  });
}
byId("figure").addEventListener("change", refresh);
byId("console-run").addEventListener("change", refresh);
document.addEventListener("visibilitychange", refresh);

tickListeners.push(() => {
  remember();
  refresh();
});

// What the address names is ticked as it appears; without any, the runs that go on, or the first.
rowListeners.push((changed) => {
  if (asked) {
    const wanted = (asked.get("runs") ?? "").split(",").filter((key) => rows.has(key) && !ticked.has(key));
    if (wanted.length) tick(wanted, true);
    if (complete) {
      if (!ticked.size && rows.size) {
        const sorted = [...rows.keys()].sort((a, b) => ORDERS.live(rows.get(a), rows.get(b)));
        const live = sorted.filter((key) => goesOn(rows.get(key))).slice(0, 4);
        tick(live.length ? live : sorted.slice(0, 1), true);
      }
      if (rows.size) asked = null;
    }
  }
  if ([...changed].some((key) => ticked.has(key) || !rows.has(key))) refresh();
});
