// The chart card: history at load in columns, one point a second after that, gaps drawn as gaps.
//
// Markup: section[data-chart] with .chart-keys and .chart; the series are given by the page's script.

import { count, size, timeFormat, timeOfDay } from "./figures.js";

const uPlot = globalThis.uPlot;
const POINTS_AT_MOST = 2000;
const SHORTEST_SPAN_S = 60;
// Up to this step a live point is appended as it comes; past it, it stands for the newest step.
const FINE_STEP_MS = 10_000;
// Lines without a change are redrawn only so often: each drawing takes some milliseconds.
const LEVEL_REDRAW_S = 5;
const BINARY_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);
const WHOLE_STEPS = Array.from({ length: 30 }, (_, place) => [1, 2, 5][place % 3] * 10 ** Math.floor(place / 3));
const cards = new Set();

/** The colour a role has now; a canvas cannot resolve custom properties itself. */
function colour(role) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${role})`;
  probe.hidden = true;
  document.body.append(probe);
  const resolved = getComputedStyle(probe).color;
  probe.remove();
  return resolved;
}

function transparent(rgb, alpha) {
  return rgb.replace(/^rgb\((.*)\)$/, `rgba($1, ${alpha})`);
}

const stamp = (seconds) => timeOfDay(seconds * 1000);
const dayOfMonth = timeFormat({ day: "numeric", month: "short" });

const DAY_S = 86_400;

/** The time of day; for ranges of days the day as well. */
function fullStamp(seconds, span) {
  return span > DAY_S ? `${dayOfMonth(seconds * 1000)} ${stamp(seconds).slice(0, 5)}` : stamp(seconds);
}

/** Hours and minutes; at midnight, and where ticks are days apart, the day. */
function shortStamp(seconds, step) {
  if (step >= DAY_S) return dayOfMonth(seconds * 1000);
  const text = stamp(seconds).slice(0, 5);
  return text === "00:00" ? dayOfMonth(seconds * 1000) : text;
}

export class ChartCard {
  #plot = null;
  #hidden = new Set();
  #stepMs = 1000;
  #span = 900;
  #dirty = false;
  #drawnTo = 0;
  #visible = true;
  #keys = [];

  /**
   * @param {HTMLElement} card
   * @param {{key: string, label: string, colour: string, dash?: number[], fill?: boolean, stack?: boolean}[]} series
   * @param {(value: number) => string} format
   * @param {{stepped?: boolean}} options stepped: a value holds from its time to the next one's
   */
  constructor(card, series, format, { stepped = false } = {}) {
    this.card = card;
    this.series = series;
    this.format = format;
    this.paths = stepped ? uPlot.paths.stepped({ align: 1 }) : undefined;
    this.data = [[], ...series.map(() => [])];
    this.plotElement = card.querySelector(".chart");
    this.#makeKeys(card.querySelector(".chart-keys"));
    new ResizeObserver(() => this.#resize()).observe(this.plotElement);
    new IntersectionObserver(([entry]) => {
      this.#visible = entry.isIntersecting;
      if (this.#visible) this.#draw();
    }).observe(card);
    card.querySelector("[data-table-toggle]")?.addEventListener("click", (event) => this.#toggleTable(event.currentTarget));
    cards.add(this);
  }

  /** Replace everything: `{span_s, step_ms, times: [ms], series: {name: [number|null]}}`. */
  load(history) {
    this.#stepMs = history.step_ms || 1000;
    this.#span = history.span_s || 900;
    const times = history.times.map((time) => time / 1000);
    const columns = this.series.map(({ key }) => (history.series[key] ?? times.map(() => null)).slice());
    this.data = withGaps([times, ...columns], this.#stepMs / 1000);
    this.#draw();
  }

  /** Append one point. Values come from `read(key)`; undefined is a gap. */
  push(at, read) {
    const times = this.data[0];
    const seconds = at / 1000;
    const last = times.at(-1) ?? 0;
    const values = this.series.map(({ key }) => read(key) ?? null);
    const goesOnLevel = values.every((value, i) => value === this.data[i + 1].at(-1));
    // The first push of a subscription repeats the newest point of the history.
    if (seconds - last < 0.5) return;
    if (this.#stepMs > FINE_STEP_MS && seconds - last < (this.#stepMs / 1000) * 0.9) {
      values.forEach((value, i) => { this.data[i + 1][times.length - 1] = value; });
    } else {
      if (last && seconds - last > (this.#stepMs / 1000) * 3.5) {
        times.push(last + this.#stepMs / 1000);
        values.forEach((_, i) => this.data[i + 1].push(null));
      }
      times.push(seconds);
      values.forEach((value, i) => this.data[i + 1].push(value));
    }
    while (times.length > POINTS_AT_MOST || seconds - times[0] > this.#span) {
      for (const column of this.data) column.shift();
    }
    if (goesOnLevel && seconds - this.#drawnTo < LEVEL_REDRAW_S) return;
    if (this.#visible && !this.#dirty) {
      this.#dirty = true;
      requestAnimationFrame(() => { this.#dirty = false; this.#draw(); });
    }
  }

  rebuild() {
    this.#plot?.destroy();
    this.#plot = null;
    this.#draw();
  }

  #draw() {
    if (!this.data[0].length) return;
    this.#drawnTo = this.data[0].at(-1);
    if (!this.#plot) this.#build();
    else if (!this.plotElement.hidden) this.#plot.setData(this.data);
    this.#showValues(this.#plot.cursor.idx ?? this.data[0].length - 1);
    if (this.table && !this.table.hidden) this.#fillTable();
  }

  #build() {
    const grid = { stroke: colour("line-soft"), width: 1 };
    const axis = { stroke: colour("text-3"), font: "11px system-ui, sans-serif", ticks: { show: false }, grid };
    const isBytes = this.format === size;
    this.plotElement.replaceChildren();
    this.#plot = new uPlot({
      width: this.plotElement.clientWidth - 16,
      height: this.plotElement.clientHeight,
      padding: [8, 30, 0, 0],
      legend: { show: false },
      cursor: { sync: { key: "page" }, points: { size: 6 }, drag: { x: true, y: false } },
      scales: {
        x: { time: true, range: (_, low, high) => this.#stretch(low, high) },
        y: { range: (_, low, high) => [Math.min(0, low ?? 0), niceTop(high, isBytes)] },
      },
      axes: [
        {
          ...axis,
          grid: { show: false },
          size: 28,
          space: 90,
          values: (_, splits, __, ___, step) => splits.map((at) => (step < 60 ? stamp(at) : shortStamp(at, step))),
        },
        {
          ...axis,
          ...(isBytes ? { incrs: BINARY_STEPS } : this.format === count ? { incrs: WHOLE_STEPS } : {}),
          size: 56,
          space: 36,
          values: (_, splits) => splits.map((value) => this.format(value)),
        },
      ],
      series: [{}, ...this.series.map((line) => ({
        label: line.label,
        show: !this.#hidden.has(line.key),
        stroke: colour(line.colour),
        width: 1.5,
        dash: line.dash,
        fill: line.fill ? transparent(colour(line.colour), 0.12) : undefined,
        spanGaps: false,
        paths: this.paths,
        points: { show: false },
      }))],
      hooks: { setCursor: [(plot) => this.#showValues(plot.cursor.idx ?? this.data[0].length - 1)] },
    }, this.data, this.plotElement);
  }

  /** What the time axis shows. Of a single point uPlot would make years. */
  #stretch(low, high) {
    const end = this.data[0].length > 1 ? high : low;
    return [Math.min(low, end - SHORTEST_SPAN_S), end];
  }

  #resize() {
    if (!this.#plot) return this.#draw();
    this.#plot.setSize({ width: this.plotElement.clientWidth - 16, height: this.plotElement.clientHeight });
  }

  #makeKeys(parent) {
    for (const line of this.series) {
      const key = document.createElement("button");
      key.type = "button";
      key.className = "chart-key";
      key.setAttribute("aria-pressed", "true");
      key.title = `Show or hide ${line.label}`;
      key.append(swatch(line), line.label, " ", document.createElement("b"));
      key.addEventListener("click", () => {
        const shown = this.#hidden.delete(line.key) || (this.#hidden.add(line.key), false);
        key.setAttribute("aria-pressed", String(shown));
        this.#plot?.setSeries(this.series.indexOf(line) + 1, { show: shown });
      });
      parent.append(key);
      this.#keys.push(key.querySelector("b"));
    }
  }

  #showValues(index) {
    this.#keys.forEach((key, i) => {
      const text = this.format(this.data[i + 1][index] ?? null);
      if (key.textContent !== text) key.textContent = text;
    });
  }

  #toggleTable(button) {
    if (!this.table) {
      this.table = document.createElement("div");
      this.table.className = "chart-table";
      this.plotElement.after(this.table);
      this.table.hidden = true;
    }
    this.table.hidden = !this.table.hidden;
    this.plotElement.hidden = !this.table.hidden;
    button.setAttribute("aria-pressed", String(!this.table.hidden));
    if (this.table.hidden) {
      this.#resize();
      this.#draw();
    } else {
      this.#fillTable();
    }
  }

  #fillTable() {
    const table = document.createElement("table");
    table.className = "table";
    const head = table.createTHead().insertRow();
    for (const label of ["Time", ...this.series.map((line) => line.label)]) {
      const cell = document.createElement("th");
      cell.textContent = label;
      if (label !== "Time") cell.className = "number";
      head.append(cell);
    }
    const body = table.createTBody();
    const times = this.data[0];
    for (let i = times.length - 1; i >= Math.max(0, times.length - 60); i--) {
      const row = body.insertRow();
      row.insertCell().textContent = fullStamp(times[i], this.#span);
      for (const column of this.data.slice(1)) {
        const cell = row.insertCell();
        cell.className = "number";
        cell.textContent = this.format(column[i]);
      }
    }
    this.table.replaceChildren(table);
  }
}

function swatch(line) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 14 8");
  svg.setAttribute("class", line.colour.replace("series-", "s"));
  const mark = document.createElementNS(space, line.fill ? "rect" : "path");
  if (line.fill) {
    for (const [name, value] of Object.entries({ width: 14, height: 8, rx: 2, fill: "currentColor" })) mark.setAttribute(name, value);
  } else {
    mark.setAttribute("d", "M0 4h14");
    mark.setAttribute("stroke", "currentColor");
    mark.setAttribute("stroke-width", "2");
    if (line.dash) mark.setAttribute("stroke-dasharray", "4 3");
  }
  svg.append(mark);
  return svg;
}

/** A rounded top with some air, so that the axis moves in steps and not with every point. */
function niceTop(high, isBytes) {
  if (!high || high <= 0) return 1;
  if (isBytes) {
    const power = 2 ** Math.floor(Math.log2(high));
    return power * [1, 1.25, 1.5, 1.75, 2, 2.5].find((step) => high * 1.05 <= step * power);
  }
  const magnitude = 10 ** Math.floor(Math.log10(high));
  for (const step of [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10]) if (high * 1.05 <= step * magnitude) return step * magnitude;
  return 12 * magnitude;
}

/** Put an empty point into every hole longer than a few steps, so that no line is drawn over it. */
function withGaps(columns, step) {
  const [times] = columns;
  const wide = columns.map(() => []);
  times.forEach((time, i) => {
    if (i && time - times[i - 1] > step * 3.5) {
      wide[0].push(times[i - 1] + step);
      wide.slice(1).forEach((column) => column.push(null));
    }
    columns.forEach((column, c) => wide[c].push(column[i]));
  });
  return wide;
}

function rebuildAll() {
  for (const card of cards) card.rebuild();
}
document.addEventListener("theme", rebuildAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", rebuildAll);

/** The data of a `<script type="application/json">` block, or null. */
export function pageData(id) {
  const element = document.getElementById(id);
  return element ? JSON.parse(element.textContent) : null;
}
