// The state of a queue or consumer as a word with its shape; frontend/troubles.py has the same words.

const TONES = {
  refusing: "bad", "not served": "bad", stuck: "bad", paused: "warn", "at a limit": "warn", growing: "warn",
  redelivering: "warn", full: "warn", fine: "good", idle: "idle",
};

/** Bring the `[data-trouble]` element below `root` up to date. */
export function showTrouble(root, state) {
  const element = root.querySelector("[data-trouble]");
  if (!element || !state.trouble || element.textContent === state.trouble) return;
  element.textContent = state.trouble;
  element.className = `state ${TONES[state.trouble] ?? "idle"}`;
}
