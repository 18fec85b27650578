// The node's overview, subscribed once for the page: the head shows its rates, the overview page the rest.

import { taken } from "./cells.js";
import { live } from "./live.js";

class OverviewFeed {
  state = null;
  #listeners = [];

  /** Call `take(state, event, time)` after each push. */
  listen(take) {
    this.#listeners.push(take);
    if (this.state) take(this.state, "start", Date.now());
    if (this.#listeners.length > 1) return;
    live.subscribe({ topic: "overview" }, (event, data, time) => {
      this.state = taken(this.state, event, data);
      for (const listener of this.#listeners) listener(this.state, event, time);
    });
  }
}

export const overview = new OverviewFeed();
