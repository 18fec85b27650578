// A request of htmx that failed leaves the page as it is and says why, in a notice: its answer is a
// whole page, which must not take the place of a part of this one.

import { parsedPage } from "./security.js";
import { toast } from "./toasts.js";

const REASON_AT_MOST = 400;
// What was last said of each place that is asked for without a person, until it is answered again.
const said = new Map();

function reasonIn({ response, text }) {
  const page = parsedPage(text);
  const words = page.querySelector('[role="alert"] .grow') ?? page.querySelector("main .sentence");
  return words?.textContent.trim().slice(0, REASON_AT_MOST) || `The server answered ${response.status}.`;
}

function say(ctx, reason) {
  const place = ctx.target?.id;
  // A poll fails again every second or two.
  if (!ctx.sourceEvent?.isTrusted) {
    if (said.get(place) === reason) return;
    said.set(place, reason);
  }
  toast(reason);
}

document.addEventListener("htmx:after:request", (event) => {
  const { ctx } = event.detail;
  if (ctx.response.status < 400) {
    said.delete(ctx.target?.id);
  } else if (!ctx.response.headers.has("HX-Redirect")) {
    // Else htmx says that it has swapped, and writes the address, though it keeps what is there.
    event.preventDefault();
    say(ctx, reasonIn(ctx));
  }
});

// No answer came. A page that is not live shows it on top; only a person who clicked needs more.
document.addEventListener("htmx:error", ({ detail: { ctx } }) => {
  if (ctx?.sourceEvent?.isTrusted && !ctx.response) toast("No answer came from the server. Try again.");
});
