import { showKinds } from "./components/kinds.js";
import { liveTable } from "./components/table.js";
import { showTrouble } from "./components/troubles.js";

liveTable(showTrouble);
showKinds(document.querySelector("#create-queue form"));
