import { liveTable } from "./components/table.js";
import { showTrouble } from "./components/troubles.js";

liveTable(showTrouble);
