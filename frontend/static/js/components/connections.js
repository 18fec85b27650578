// The state of a connection as a word with its shape; templatetags/cells.py has the same.

const TONES = { running: "good", blocked: "bad", blocking: "warn", flow: "warn" };

/** Bring the `[data-connection-state]` element below `root` up to date. */
export function showConnectionState(root, { state }) {
  const element = root.querySelector("[data-connection-state]");
  if (!element || !state || element.textContent === state) return;
  element.textContent = state;
  element.className = `state ${TONES[state] ?? "idle"}`;
  element.title = state === "blocked" ? "Its publishes are not read while an alarm is in force" : "";
}
