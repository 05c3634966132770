"use strict";
// The agent, thinking: a game that is played step by step, with what the agent makes of each moment.

const TITLES = { values: "Q-values", chances: "Action probabilities", scores: "Scores", numbers: "What it does", none: "Actions" };
const NOTES = {
  values: "The return that the agent expects after each action. Bars begin at the lowest legal value.",
  chances: "How likely the policy is to choose each action.",
  scores: "The agent takes the legal action with the highest score. Bars begin at the lowest legal one.",
  numbers: "The agent's actions are numbers between -1 and 1.",
  none: "This agent does not say what it thinks of its actions.",
};
const PALETTE = ["#3b6fd4", "#d9622b", "#2f9e62", "#b0409a", "#8a6d1f", "#11a0b5", "#c63d4f", "#6a5acd"];
const ARROWS = { ArrowUp: "w", ArrowDown: "s", ArrowLeft: "a", ArrowRight: "d" };
const AGENT = -1; // in place of a person's action

let moment = null;
let trace = []; // [step, value] of this episode, of the shown player
let waiting = false; // for an answer
let pressed = null; // the action that was asked for meanwhile
let runs = false; // it goes on by itself
let held = null; // the person's last action, where the game goes on by itself
let current = Promise.resolve(false); // the last request
let begun = ""; // what the shown game was begun with
const charts = {};

const shownPlayer = () => moment.players[Math.min(+byId("player").value || 0, moment.players.length - 1)];
const mine = () => byId("mine").checked && !byId("mine-label").hidden;

const chart = (id, name, xlabel, lines) => {
  const figure = { id, name, env: "", title: name, xlabel, ylabel: name, level: null, bounds: [null, null], lines };
  if (!charts[id]) {
    charts[id] = new Chart(byId(id), figure);
    charts[id].size.height = 210;
    views.push(charts[id]);
  }
  charts[id].figure = figure;
  charts[id].draw();
};

const line = (method, x, mean) => {
  const none = x.map(() => null);
  return { method, x, mean, seconds: null, low: none, high: none, seeds: [] };
};

const showBars = (thought) => {
  const place = byId("bars");
  const legal = thought.bars.filter((bar) => bar.legal && bar.value !== null).map((bar) => bar.value);
  const chances = thought.kind === "chances";
  const low = chances ? 0 : thought.kind === "numbers" ? -1 : Math.min(...legal);
  const high = chances || thought.kind === "numbers" ? 1 : Math.max(...legal);
  const width = (value) => (high > low ? 4 + (96 * (value - low)) / (high - low) : 100);
  place.classList.toggle("many", thought.bars.length > 12);
  if (place.children.length !== thought.bars.length) {
    place.replaceChildren();
    thought.bars.forEach((_, index) => {
      const row = make("button", "action", undefined, place);
      row.type = "button";
      make("span", "", "", row);
      make("i", "", undefined, make("span", "track", undefined, row));
      make("span", "", "", row);
      row.addEventListener("click", () => play(index));
    });
  }
  thought.bars.forEach((bar, index) => {
    const row = place.children[index];
    const [name, track, number] = row.children;
    row.className = `action${index === thought.chosen ? " chosen" : ""}${bar.legal ? "" : " illegal"}`;
    row.disabled = !mine() || !bar.legal || moment.over !== "";
    const key = moment.keys && mine() ? ` (${moment.keys[index] === " " ? "space" : moment.keys[index]})` : "";
    name.textContent = bar.name + key;
    number.textContent = !bar.legal ? "illegal" : bar.value === null ? "" : chances ? `${(100 * bar.value).toFixed(1)} %` : `${+bar.value.toPrecision(4)}`;
    track.firstChild.style.width = bar.legal && bar.value !== null ? `${chances ? 100 * bar.value : width(bar.value)}%` : "0";
    row.setAttribute("aria-label", `${bar.name}: ${number.textContent}${index === thought.chosen ? ", the agent's choice" : ""}`);
  });
  byId("bars-title").textContent = TITLES[thought.kind];
  byId("bars-note").textContent = NOTES[thought.kind];
};

const showSpreads = (thought) => {
  byId("spread-card").hidden = thought.spreads.length === 0;
  if (!thought.spreads.length) return;
  const rising = thought.spreads.every((one) => one.y.every((value, index) => index === 0 || value >= one.y[index - 1]));
  byId("spread-caption").textContent = rising ? "the chance that the return is below a number" : "the chance of each return";
  thought.spreads.forEach((one, index) => (report.colours[one.name] = PALETTE[index % PALETTE.length]));
  byId("spread-names").replaceChildren(...thought.spreads.map((one) => {
    const name = make("span", "", one.name);
    const colour = make("i");
    colour.style.background = report.colours[one.name];
    name.prepend(colour);
    return name;
  }));
  chart("spread-chart", "chance", "return", thought.spreads.map((one) => line(one.name, one.x, one.y)));
};

const showLegend = () => {
  const place = byId("legend");
  byId("mine-label").hidden = !moment.keys;
  place.hidden = !moment.keys || !mine();
  if (place.hidden) return;
  place.replaceChildren(...moment.legend.map((text) => make("p", "", text)));
  const keys = make("p", "", "Keys:", place);
  moment.players[0].bars.forEach((bar, index) => {
    make("kbd", "", moment.keys[index] === " " ? "space" : moment.keys[index], keys);
    keys.append(bar.name);
  });
  make("p", "", "The arrow keys are w, s, a and d. An action can also be clicked. Enter takes the agent's advice.", place);
};

const showMoment = () => {
  const thought = shownPlayer();
  const picture = byId("picture");
  picture.src = moment.picture;
  picture.classList.toggle("small", moment.width < 300);
  picture.hidden = false;
  picture.alt = `${moment.env} at step ${moment.step}`;
  byId("waiting").textContent = "";
  byId("ending").hidden = !moment.over;
  byId("ending").textContent = `The episode ${moment.over} after ${whole(moment.step)} steps with a return of ${short(moment.total ?? NaN)}. A step begins the next one.`;
  byId("at-step").textContent = whole(moment.step);
  byId("at-return").textContent = moment.total === null ? "not a number" : short(moment.total);
  byId("at-value").textContent = thought.value === null ? "-" : short(thought.value);
  const select = byId("player");
  byId("player-label").hidden = moment.players.length < 2;
  if (select.options.length !== moment.players.length) select.replaceChildren(...moment.players.map((_, index) => new Option(index, index)));
  report.colours.value = PALETTE[0];
  chart("value-chart", "value", "step", trace.length ? [line("value", trace.map((one) => one[0]), trace.map((one) => one[1]))] : []);
  showBars(thought);
  showSpreads(thought);
  showLegend();
};

const receiveMoment = (answer, first) => {
  moment = answer;
  if (moment.step === 0) trace = [];
  const { value } = shownPlayer();
  if (value !== null && !moment.over) trace.push([moment.step, value]);
  byId("seed").value = moment.seed;
  if (first && !runs) byId("speed").value = moment.rate;
  showSpeed();
  showMoment();
};

const request = (action, seed) => {
  const run = byId("agent-run").value;
  if (!waiting && run) current = sent(run, action, seed);
  return current;
};

const sent = async (run, action, seed) => {
  waiting = true;
  const first = action === null;
  for (const id of ["step", "run"]) byId(id).disabled = first;
  try {
    const answer = await send("/game", {
      game: moment?.game ?? "",
      run,
      member: +byId("member").value || 0,
      best: byId("weights").value === "best",
      seed,
      action,
    });
    complain([]);
    receiveMoment(answer, first);
    return true;
  } catch (error) {
    halt();
    byId("waiting").textContent = error.message;
    if (first) moment = null;
    byId("picture").hidden ||= first;
    return false;
  } finally {
    waiting = false;
    for (const id of ["step", "run"]) byId(id).disabled = moment === null;
    const next = pressed;
    pressed = null;
    if (next !== null && moment && !runs) play(next);
  }
};

const begin = async (seed) => {
  halt();
  pressed = null;
  await current; // what comes of it is no longer wanted
  if (!moment) byId("waiting").textContent = "Loading the agent and compiling its game; the first time this takes a while ...";
  await request(null, seed);
};

const play = (action) => {
  held = action;
  if (!moment || (moment.over && action !== AGENT)) return;
  if (waiting) pressed = action;
  else request(action, 0);
};

const goOn = async () => {
  while (runs && moment) {
    const began = performance.now();
    const next = moment.over || !mine() ? AGENT : held ?? 0;
    if (moment.over) await new Promise((resolve) => setTimeout(resolve, 900));
    if (!runs) return;
    await request(next, 0);
    const left = 1000 / +byId("speed").value - (performance.now() - began);
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, left)));
  }
};

const showRun = () => {
  byId("run").setAttribute("aria-pressed", String(runs));
  byId("run").firstElementChild.textContent = runs ? "Pause" : "Run";
};

const halt = () => {
  runs = false;
  showRun();
};

const toggle = () => {
  runs = !runs && moment !== null;
  showRun();
  if (runs) goOn();
};

const showSpeed = () => {
  byId("speed-shown").textContent = `${byId("speed").value} / s`;
};

// Called whenever the ticked runs change, and when the tab is opened.
const offerAgent = () => {
  const run = byId("agent-run").value;
  const members = rows.get(run)?.members ?? 1;
  const select = byId("member");
  if (select.options.length !== members) select.replaceChildren(...Array.from({ length: members }, (_, index) => new Option(index, index)));
  const wanted = JSON.stringify([run, select.value, byId("weights").value]);
  if (wanted === begun) return;
  begun = wanted;
  moment = null;
  trace = [];
  byId("picture").hidden = true;
  byId("ending").hidden = true;
  byId("mine").checked = false;
  byId("bars").replaceChildren();
  begin(+byId("seed").value || 0);
  byId("stage").focus({ preventScroll: true });
};

for (const id of ["agent-run", "member", "weights"]) byId(id).addEventListener("change", offerAgent);
byId("seed").addEventListener("change", () => begin(Math.max(0, Math.floor(+byId("seed").value || 0))));
const newSeed = () => begin(Math.floor(Math.random() * 1e6));
byId("new-seed").addEventListener("click", newSeed);
byId("step").addEventListener("click", () => play(AGENT));
byId("run").addEventListener("click", toggle);
byId("speed").addEventListener("input", showSpeed);
byId("player").addEventListener("change", () => {
  trace = [];
  showMoment();
});
byId("mine").addEventListener("change", () => {
  halt();
  held = null;
  if (mine()) byId("player").value = "0";
  showMoment();
  byId("stage").focus({ preventScroll: true });
});

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input:not([type=checkbox]):not([type=range]), select, textarea, [role=tab], aside");
  if (tab !== "agent" || !moment || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const onButton = event.target.closest("button, input, a");
  if (mine()) {
    const key = ARROWS[event.key] ?? event.key;
    const action = onButton && key === " " ? -1 : moment.keys.indexOf(key);
    if (action >= 0 && event.key.length) {
      event.preventDefault();
      if (moment.players[0].bars[action].legal) play(action);
      return;
    }
    if (event.key === "Enter" && !onButton) play(AGENT);
    return;
  }
  if (onButton && event.key === " ") return; // the button is pressed
  const act = { " ": () => play(AGENT), r: toggle, n: newSeed }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

choose(tabs.some((one) => one.dataset.tab === asked.get("tab")) ? asked.get("tab") : "curves");
listen();
