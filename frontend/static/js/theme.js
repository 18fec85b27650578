// Runs before the first paint, so that a chosen theme does not flash. A classic script on purpose.
"use strict";
{
  const chosen = localStorage.getItem("leveret.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
