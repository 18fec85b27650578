import { showKinds } from "./components/kinds.js";
import { liveTable } from "./components/table.js";

liveTable();
showKinds(document.querySelector("#create-exchange form"));
