"use strict";
// Draws the figures of the page from the data in it: lines with a band, zoom by dragging, values under the pointer.

const report = JSON.parse(document.getElementById("report-data").textContent);
const hidden = new Set();
const views = [];

const node = (name, attributes, parent) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (parent) parent.append(made);
  return made;
};

const short = (value) => {
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toFixed(2)} M`;
  if (size >= 1e4) return `${+(value / 1e3).toFixed(1)} k`;
  if (size >= 100) return `${+value.toFixed(1)}`;
  return `${+value.toPrecision(3)}`;
};

const ticks = (low, high, count) => {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const found = [];
  for (let index = Math.ceil(low / step); index * step <= high + step * 1e-9; index += 1) found.push(+(index * step).toPrecision(12));
  return found;
};

// What ticks say, all of an axis in one unit; `axes.py` has the same rules, and `extent` too.
const labels = (values) => {
  const most = Math.max(0, ...values.map(Math.abs));
  const [size, unit] = most >= 1e6 ? [1e6, " M"] : most >= 1e4 ? [1e3, " k"] : [1, ""];
  return values.map((value) => (value ? `${+(value / size).toPrecision(8)}${unit}` : "0"));
};

const extent = (values, [lowest, highest]) => {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value === null || value === undefined) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) return [0, 1];
  const least = lowest === null || low < lowest ? -Infinity : lowest;
  const most = highest === null || high > highest ? Infinity : highest;
  const span = 0.04 * Math.max(Math.abs(low), Math.abs(high)) || 1;
  const flat = high - low < span;
  if ((flat || (lowest === 0 && highest === 1)) && Number.isFinite(most - least)) [low, high] = [least, most];
  else if (flat) {
    [low, high] = [(low + high - span) / 2, (low + high + span) / 2];
    const beyond = Math.max(0, high - most) - Math.max(0, least - low);
    [low, high] = [low - beyond, high - beyond];
  }
  const size = high - low;
  return [Math.max(low - 0.05 * size, least - 0.02 * size), Math.min(high + 0.05 * size, most + 0.02 * size)];
};

const path = (xs, ys, toX, toY) => {
  let text = "";
  let count = 0;
  for (let index = 0; index < xs.length; index += 1) {
    if (ys[index] === null) continue;
    text += `${count ? "L" : "M"}${toX(xs[index]).toFixed(1)},${toY(ys[index]).toFixed(1)}`;
    count += 1;
  }
  return [text, count];
};

// As wide as its place, in whole pixels, so that text has the same size everywhere.
const fit = (svg, place, height) => {
  const width = Math.max(280, Math.floor(place.clientWidth));
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  return width;
};

class Chart {
  constructor(place, figure) {
    this.figure = figure;
    this.range = null;
    this.size = { width: 560, height: 320, left: 54, right: 14, top: 10, bottom: 40 };
    this.place = place;
    this.svg = node("svg", { role: "img", "aria-label": `${figure.title}: ${figure.ylabel}` }, place);
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    place.append(this.tip);
    this.reset = place.closest(".card").querySelector("button.reset");
    if (this.reset) this.reset.onclick = () => this.zoom(null);
    this.svg.addEventListener("pointermove", (event) => this.move(event));
    this.svg.addEventListener("pointerleave", () => this.leave());
    this.svg.addEventListener("pointerdown", (event) => this.press(event));
    this.svg.addEventListener("pointerup", (event) => this.release(event));
    this.svg.addEventListener("dblclick", () => this.zoom(null));
  }

  axis(line) {
    return report.clock === "seconds" && line.seconds ? line.seconds : line.x;
  }

  lines() {
    return this.figure.lines.filter((line) => !hidden.has(line.method));
  }

  zoom(range) {
    this.range = range;
    if (this.reset) this.reset.classList.toggle("on", range !== null);
    this.draw();
  }

  scales() {
    const lines = this.lines();
    const ends = lines.map((line) => this.axis(line)).flatMap((xs) => [xs[0], xs[xs.length - 1]]);
    const whole = ends.length ? [Math.min(...ends), Math.max(...ends)] : [0, 1];
    const [x0, x1] = this.range ?? (whole[0] === whole[1] ? [whole[0] - 1, whole[1] + 1] : whole);
    const seen = this.range ? [] : [this.figure.level];
    for (const line of lines) {
      this.axis(line).forEach((x, index) => {
        if (x < x0 || x > x1) return;
        // A band of few seeds can be far wider than what they did; it is cut off rather than flattening the curves.
        for (const values of line.seeds.length ? line.seeds : [line.mean, line.low, line.high]) seen.push(values[index]);
      });
    }
    const [y0, y1] = extent(seen, this.figure.bounds);
    return { x0, x1, y0, y1 };
  }

  draw() {
    this.size.width = fit(this.svg, this.place, this.size.height);
    const { width, height, left, right, top, bottom } = this.size;
    const { x0, x1, y0, y1 } = this.scales();
    const toX = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
    const toY = (y) => height - bottom - ((y - y0) / (y1 - y0)) * (height - top - bottom);
    this.fromX = (pixel) => x0 + ((pixel - left) / (width - left - right)) * (x1 - x0);
    this.toX = toX;
    this.svg.replaceChildren();
    const rows = ticks(y0, y1, 6);
    labels(rows).forEach((label, index) => {
      const y = toY(rows[index]);
      node("line", { class: "grid-line", x1: left, x2: width - right, y1: y, y2: y }, this.svg);
      node("text", { x: left - 8, y: y + 4, "text-anchor": "end", class: "y-tick" }, this.svg).textContent = label;
    });
    const columns = ticks(x0, x1, Math.max(4, width / 80));
    labels(columns).forEach((label, index) => {
      node("text", { x: toX(columns[index]), y: height - bottom + 17, "text-anchor": "middle", class: "x-tick" }, this.svg).textContent = label;
    });
    node("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }, this.svg);
    const label = report.clock === "seconds" && this.figure.lines.some((line) => line.seconds) ? "seconds" : this.figure.xlabel;
    node("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, this.svg).textContent = label;
    const id = `clip-${this.figure.id}`;
    node("rect", { x: left, y: top - 4, width: width - left - right, height: height - top - bottom + 8 }, node("clipPath", { id }, this.svg));
    const area = node("g", { "clip-path": `url(#${id})` }, this.svg);
    for (const line of this.lines()) {
      const xs = this.axis(line);
      const colour = report.colours[line.method];
      line.seeds.forEach((values) => {
        const [d, points] = path(xs, values, toX, toY);
        if (points) node("path", { class: "seed", d, stroke: colour, "data-points": points, "data-method": line.method }, area);
      });
      const inside = xs.map((_, index) => index).filter((index) => line.low[index] !== null && line.high[index] !== null);
      if (inside.length > 1) {
        const upper = inside.map((index) => `${toX(xs[index]).toFixed(1)},${toY(line.high[index]).toFixed(1)}`);
        const lower = inside.reverse().map((index) => `${toX(xs[index]).toFixed(1)},${toY(line.low[index]).toFixed(1)}`);
        node("polygon", { class: "band", points: [...upper, ...lower].join(" "), fill: colour }, area);
      }
    }
    for (const line of this.lines()) {
      const [d, points] = path(this.axis(line), line.mean, toX, toY);
      node("path", { class: "mean", d, stroke: report.colours[line.method], "data-points": points, "data-method": line.method }, area);
    }
    const { level } = this.figure;
    if (level !== null && level > y0 && level < y1) {
      node("line", { class: "level", x1: left, x2: width - right, y1: toY(level), y2: toY(level) }, area);
    }
  }

  pixel(event) {
    return event.clientX - this.svg.getBoundingClientRect().left;
  }

  move(event) {
    const at = this.pixel(event);
    const { left, right, width, height, top, bottom } = this.size;
    this.svg.querySelectorAll(".cursor, .selection").forEach((old) => old.remove());
    if (at < left || at > width - right) return this.leave();
    if (this.pressed !== undefined) {
      const x = Math.min(at, this.pressed);
      node("rect", { class: "selection", x, y: top, width: Math.abs(at - this.pressed), height: height - top - bottom }, this.svg);
    }
    node("line", { class: "cursor", x1: at, x2: at, y1: top, y2: height - bottom }, this.svg);
    const x = this.fromX(at);
    let where = null;
    const rows = this.lines().map((line) => {
      const xs = this.axis(line);
      let best = 0;
      xs.forEach((value, index) => {
        if (Math.abs(value - x) < Math.abs(xs[best] - x)) best = index;
      });
      if (where === null || Math.abs(xs[best] - x) < Math.abs(where - x)) where = xs[best];
      const known = line.low[best] !== null && line.low[best] !== undefined;
      const interval = known ? ` <small>${short(line.low[best])} to ${short(line.high[best])}</small>` : "";
      const value = line.mean[best] === null ? "-" : short(line.mean[best]);
      const name = document.createElement("span");
      name.textContent = line.method;
      return `<div><i style="background:${report.colours[line.method]}"></i>${name.innerHTML}<b>${value}${interval}</b></div>`;
    });
    if (where === null) return this.leave();
    this.tip.innerHTML = `<div>${short(where)}</div>${rows.slice(0, 12).join("")}`;
    this.tip.hidden = false;
    const box = this.svg.getBoundingClientRect();
    const outer = this.place.getBoundingClientRect();
    const far = event.clientX - outer.left > outer.width / 2;
    this.tip.style.left = far ? "auto" : `${event.clientX - outer.left + 16}px`;
    this.tip.style.right = far ? `${outer.right - event.clientX + 16}px` : "auto";
    this.tip.style.top = `${Math.max(0, event.clientY - box.top - 20)}px`;
    return undefined;
  }

  leave() {
    this.tip.hidden = true;
    this.pressed = undefined;
    this.svg.querySelectorAll(".cursor, .selection").forEach((old) => old.remove());
  }

  press(event) {
    if (event.button === 0) this.pressed = this.pixel(event);
  }

  release(event) {
    const from = this.pressed;
    this.pressed = undefined;
    if (from === undefined) return;
    const to = this.pixel(event);
    if (Math.abs(to - from) > 8) this.zoom([this.fromX(Math.min(from, to)), this.fromX(Math.max(from, to))]);
  }
}

class Intervals {
  constructor(place, figure) {
    this.figure = figure;
    this.place = place;
    this.svg = node("svg", { role: "img", "aria-label": `${figure.title}: ${figure.xlabel}` }, place);
  }

  draw() {
    const bars = this.figure.bars.filter((bar) => !hidden.has(bar.method));
    const row = 34;
    const left = Math.min(240, 24 + 7 * Math.max(4, ...bars.map((bar) => bar.method.length)));
    const height = row * bars.length + 52;
    const width = fit(this.svg, this.place, height);
    this.svg.replaceChildren();
    const [low, high] = extent(bars.flatMap((bar) => [bar.low, bar.high]), this.figure.bounds);
    const toX = (x) => left + ((x - low) / (high - low)) * (width - left - 20);
    const places = ticks(low, high, 6);
    labels(places).forEach((label, index) => {
      const x = toX(places[index]);
      node("line", { class: "grid-line", x1: x, x2: x, y1: 6, y2: height - 38 }, this.svg);
      node("text", { x, y: height - 22, "text-anchor": "middle", class: "x-tick" }, this.svg).textContent = label;
    });
    bars.forEach((bar, index) => {
      const y = 6 + row * (index + 0.5);
      const colour = report.colours[bar.method];
      node("text", { x: left - 10, y: y + 4, "text-anchor": "end" }, this.svg).textContent = bar.method.length > 32 ? `${bar.method.slice(0, 31)}…` : bar.method;
      node("rect", { class: "interval", x: toX(bar.low), y: y - 6, width: Math.max(2, toX(bar.high) - toX(bar.low)), height: 12, rx: 6, fill: colour, opacity: 0.3 }, this.svg);
      const dot = node("circle", { class: "value", cx: toX(bar.value), cy: y, r: 5.5, fill: colour }, this.svg);
      node("title", {}, dot).textContent = `${bar.method}: ${short(bar.value)} (${short(bar.low)} to ${short(bar.high)}), ${bar.seeds} seeds`;
    });
    node("text", { x: (left + width - 20) / 2, y: height - 4, "text-anchor": "middle" }, this.svg).textContent = this.figure.xlabel;
  }
}

const show = (place) => {
  const figure = report.figures.find((one) => one.id === place.dataset.figure);
  place.replaceChildren();
  const view = figure.bars ? new Intervals(place, figure) : new Chart(place, figure);
  view.draw();
  const old = views.findIndex((one) => one.place === place);
  if (old >= 0) views.splice(old, 1);
  views.push(view);
};

const redraw = () => views.forEach((view) => view.draw());
window.addEventListener("resize", redraw);

document.querySelectorAll("[data-figure]").forEach(show);

const kind = document.getElementById("kind");
kind?.addEventListener("change", () => {
  document.querySelectorAll("[data-curves]").forEach((place) => {
    const figure = report.figures.find((one) => one.name === kind.value && one.env === place.dataset.curves);
    const card = place.closest(".card");
    card.hidden = !figure;
    if (!figure) return;
    place.dataset.figure = figure.id;
    card.querySelector("figcaption").textContent = figure.ylabel;
    show(place);
  });
});

document.getElementById("clock")?.addEventListener("change", (event) => {
  report.clock = event.target.value;
  views.forEach((view) => (view.zoom ? view.zoom(null) : view.draw()));
});

document.querySelectorAll(".legend button").forEach((button) => {
  button.addEventListener("click", () => {
    const { method } = button.dataset;
    if (hidden.has(method)) hidden.delete(method);
    else hidden.add(method);
    button.setAttribute("aria-pressed", String(!hidden.has(method)));
    redraw();
  });
});
