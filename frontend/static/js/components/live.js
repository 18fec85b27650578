// One WebSocket for the page. Everything live on the page is a subscription on it.
//
// A hidden page unsubscribes at once and closes the socket after a minute; a lost socket comes back by
// itself, also one on which nothing comes any more: a connection can be dead without being closed.
// Each subscription begins with the whole state ("start") and then gets changed values ("delta").

const CLOSE_WHEN_HIDDEN_MS = 60_000;
const BACKOFF_FIRST_MS = 500;
const BACKOFF_LAST_MS = 15_000;
// Of these a push comes every second, changed or not.
const EVERY_SECOND = ["overview", "item"];
const SILENCE_MS = 5_000;
// Later than the web process reports a broker that hangs: then the connection is sound, and is kept.
const DROPPED_AFTER_MS = 15_000;
const SIGNED_OUT = 4401;
const TOO_MANY = 4429;

class Live extends EventTarget {
  #socket = null;
  #subscriptions = new Map();
  #nextId = 1;
  #backoff = BACKOFF_FIRST_MS;
  #timer = 0;
  #hiddenTimer = 0;
  #silenceTimer = 0;
  lastUpdate = 0;
  state = "connecting";

  constructor() {
    super();
    document.addEventListener("visibilitychange", () => this.#visibilityChanged());
    addEventListener("pagehide", () => this.#socket?.close());
    addEventListener("pageshow", (event) => { if (event.persisted) this.#connect(); });
  }

  /** Start a subscription. `take(event, data, at)` is called for each push. Returns its id. */
  subscribe(request, take) {
    const id = this.#nextId++;
    this.#subscriptions.set(id, { request, take });
    if (!document.hidden) this.#send({ type: "subscribe", id, ...request });
    this.#connect();
    return id;
  }

  unsubscribe(id) {
    if (this.#subscriptions.delete(id)) this.#send({ type: "unsubscribe", id });
  }

  #connect() {
    if (this.#socket || document.hidden || this.state === "signed out") return;
    clearTimeout(this.#timer);
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/live/`);
    this.#socket = socket;
    socket.addEventListener("open", () => {
      this.#subscribeAll();
    });
    socket.addEventListener("message", (message) => {
      if (this.#socket === socket) this.#take(JSON.parse(message.data));
    });
    socket.addEventListener("close", (event) => {
      if (this.#socket !== socket) return;
      this.#socket = null;
      clearTimeout(this.#silenceTimer);
      if (event.code === SIGNED_OUT) {
        this.#become("signed out");
        location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
      } else if (!document.hidden) {
        if (event.code === TOO_MANY) {
          this.#become("not live");
          this.dispatchEvent(new CustomEvent("full", { detail: event.reason }));
          this.#backoff = BACKOFF_LAST_MS;
        } else if (this.state !== "not live") {
          this.#become("reconnecting");
        }
        this.#connectLater();
      }
    });
  }

  #connectLater() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#connect(), this.#backoff * (0.75 + Math.random() / 2));
    this.#backoff = Math.min(this.#backoff * 2, BACKOFF_LAST_MS);
  }

  #subscribeAll() {
    for (const [id, { request }] of this.#subscriptions) this.#send({ type: "subscribe", id, ...request });
    this.#watchSilence();
  }

  /** From now on a push is due within a few seconds. */
  #watchSilence() {
    clearTimeout(this.#silenceTimer);
    const isDue = [...this.#subscriptions.values()].some(({ request }) => EVERY_SECOND.includes(request.topic));
    if (!isDue || document.hidden) return;
    this.#silenceTimer = setTimeout(() => {
      this.#become("reconnecting");
      this.#silenceTimer = setTimeout(() => this.#drop(), DROPPED_AFTER_MS - SILENCE_MS);
    }, SILENCE_MS);
  }

  #drop() {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    this.#connectLater();
  }

  #take(push) {
    this.#backoff = BACKOFF_FIRST_MS;
    if (document.hidden) return;
    if (push.event === "away") {
      // Nothing more comes until the broker is back.
      clearTimeout(this.#silenceTimer);
      return this.#become("broker away");
    }
    if (push.event === "ended") {
      this.#subscriptions.delete(push.id);
      this.#watchSilence();
      this.dispatchEvent(new CustomEvent("ended", { detail: push.data }));
      return;
    }
    this.lastUpdate = Date.now();
    this.#watchSilence();
    this.#become("live");
    this.#subscriptions.get(push.id)?.take(push.event, push.data, push.at);
  }

  #visibilityChanged() {
    if (document.hidden) {
      for (const id of this.#subscriptions.keys()) this.#send({ type: "unsubscribe", id });
      this.#become("paused");
      clearTimeout(this.#silenceTimer);
      this.#hiddenTimer = setTimeout(() => {
        this.#socket?.close();
        this.#socket = null;
      }, CLOSE_WHEN_HIDDEN_MS);
      return;
    }
    clearTimeout(this.#hiddenTimer);
    if (this.#socket?.readyState === WebSocket.OPEN) {
      this.#subscribeAll();
    } else {
      this.#connect();
    }
  }

  #send(message) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  #become(state) {
    if (this.state === state) return;
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }
}

export const live = new Live();
