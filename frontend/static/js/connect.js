// Language tabs; the choice is in the address, so that a link leads to one language.

const tabs = [...document.querySelectorAll('[role="tab"]')];

function choose(id) {
  const chosen = tabs.find((tab) => tab.getAttribute("aria-controls") === id) ?? tabs[0];
  for (const tab of tabs) {
    const isChosen = tab === chosen;
    tab.toggleAttribute("aria-current", isChosen);
    tab.setAttribute("aria-selected", String(isChosen));
    document.getElementById(tab.getAttribute("aria-controls")).hidden = !isChosen;
  }
}

for (const tab of tabs) {
  tab.addEventListener("click", (event) => {
    event.preventDefault();
    const id = tab.getAttribute("aria-controls");
    history.replaceState(null, "", `#${id}`);
    choose(id);
  });
}
if (location.hash) choose(location.hash.slice(1));
