// Sparklines: 60 points, drawn by the server, moved here. Their titles say what they show.

import { rate } from "./figures.js";

const POINTS = 60;
const WIDTH = 120;
const HEIGHT = 26;

export class Spark {
  constructor(svg, values) {
    this.line = svg.querySelector(".line");
    this.area = svg.querySelector(".area");
    this.title = svg.querySelector("title");
    this.label = svg.dataset.label;
    this.values = values.slice(-POINTS);
  }

  push(value) {
    this.values.push(value ?? null);
    if (this.values.length > POINTS) this.values.shift();
    this.#draw();
  }

  #name(known) {
    const span = `from ${rate(Math.min(...known))} to ${rate(Math.max(...known))}`;
    const text = `${this.label}: ${span}, now ${rate(known.at(-1))}`;
    if (this.title.textContent !== text) this.title.textContent = text;
  }

  #draw() {
    const known = this.values.filter((value) => value !== null);
    if (known.length < 2) return;
    this.#name(known);
    const top = Math.max(...known, 1e-9);
    const step = WIDTH / (this.values.length - 1);
    let line = "";
    let area = "";
    let open = false;
    this.values.forEach((value, i) => {
      if (value === null) {
        if (open) area += `L${((i - 1) * step).toFixed(1)},${HEIGHT}Z`;
        open = false;
        return;
      }
      const point = `${(i * step).toFixed(1)},${(HEIGHT - 1 - (value / top) * (HEIGHT - 3)).toFixed(1)}`;
      line += (open ? "L" : "M") + point;
      area += open ? `L${point}` : `M${(i * step).toFixed(1)},${HEIGHT}L${point}`;
      open = true;
    });
    if (open) area += `L${WIDTH},${HEIGHT}Z`;
    // A line that stays level looks the same a second later.
    if (this.line.getAttribute("d") === line) return;
    this.line.setAttribute("d", line);
    this.area.setAttribute("d", area);
  }
}
