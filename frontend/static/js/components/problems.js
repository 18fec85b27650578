// Lines of problems; frontend/problems.py and templates/components/problem.html write the same.

import { connectionAddress, queueAddress } from "./addresses.js";
import { nameElement } from "./figures.js";

function address(problem) {
  const { kind, vhost, name, trouble } = problem;
  if (kind === "queue") {
    const queue = queueAddress(vhost, name);
    if (problem.consumer === undefined) return queue;
    return queue.includes("?") ? `${queue}&tab=consumers` : `${queue}/consumers`;
  }
  if (kind === "connection") return connectionAddress(name);
  if (kind === "channels") return `/channels?${new URLSearchParams({ vhost, sort: "-messages_unconfirmed" })}`;
  return `/${kind}?${new URLSearchParams({ vhost, state: trouble })}`;
}

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

function link(href, ...children) {
  const made = element("a", "", ...children);
  made.href = href;
  return made;
}

/** The list item of one problem, or of several that are alike. */
export function problemLine(problem) {
  const about = element("span", "grow");
  if (problem.count > 1) {
    const names = problem.names.flatMap((name, i) => (i ? [", ", nameElement(name)] : [nameElement(name)]));
    if (problem.count > problem.names.length) names.push(", …");
    about.append(
      link(address(problem), problem.text), " ",
      element("span", "hint", "in ", nameElement(problem.vhost), ": ", ...names),
    );
  } else if (problem.kind === "node") {
    about.append(problem.text);
  } else {
    about.append(
      link(address(problem), nameElement(problem.user_provided_name || problem.name)), " ",
      element("span", "hint", "in ", nameElement(problem.vhost), ":"), " ", problem.text,
    );
  }
  return element("li", "", element("span", `state ${problem.severity}`, problem.trouble), about);
}
