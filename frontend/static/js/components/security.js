// What lets htmx work under the page's policy, and no further: fragments of this server are HTML,
// scripts in them are emptied, and nothing is ever evaluated from a string.

function refuse() {
  throw new Error("Leveret evaluates no strings");
}

function makePolicy() {
  const rules = { createHTML: (html) => html, createScript: () => "" };
  return globalThis.trustedTypes?.createPolicy("htmx", rules) ?? rules;
}

const policy = makePolicy();

/** A page of this server as a document of its own, in which nothing runs or is loaded. */
export function parsedPage(text) {
  return new DOMParser().parseFromString(policy.createHTML(text), "text/html");
}

// What the pages use of htmx.
const POWERED = "[hx-get], [hx-post]";

globalThis.htmx.registerExtension("leveret-security", {
  init(api) {
    api.initSecurity(policy, refuse, refuse);
  },
  // By itself htmx looks into every attribute of a page for code to evaluate. That is refused here, and
  // in a list with 1,300 cells it takes longer than all other scripts of the page.
  htmx_before_process(element) {
    if (element.matches(POWERED)) return true;
    for (const one of element.querySelectorAll(POWERED)) globalThis.htmx.process(one);
    return false;
  },
});

// The page asks htmx to wait for this. Where it begins first, it has looked at nothing.
document.body.removeAttribute("data-hx-ignore");
globalThis.htmx.process(document.body);
