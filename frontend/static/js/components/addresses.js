// Where objects are; frontend/addresses.py says the same. Names `.` and `..` go by query, because a
// browser folds them away in a path.

const FOLDED = new Set([".", "..", ""]);

function address(page, names) {
  const values = Object.values(names);
  if (values.some((value) => FOLDED.has(value))) return `/${page}?${new URLSearchParams(names)}`;
  return `/${page}s/${values.map(encodeURIComponent).join("/")}`;
}

export const queueAddress = (vhost, name) => address("queue", { vhost, name });
export const exchangeAddress = (vhost, name) => address("exchange", { vhost, name: name || "amq.default" });
export const connectionAddress = (name) => address("connection", { name });
