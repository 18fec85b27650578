// What lets htmx work under the page's policy, and no further: fragments of this server are HTML,
// scripts in them are emptied, and nothing is ever evaluated from a string.

function refuse() {
  throw new Error("Leveret evaluates no strings");
}

function makePolicy() {
  const rules = { createHTML: (html) => html, createScript: () => "" };
  return globalThis.trustedTypes?.createPolicy("htmx", rules) ?? rules;
}

globalThis.htmx.registerExtension("house-security", {
  init(api) {
    api.initSecurity(makePolicy(), refuse, refuse);
  },
});
