import { liveTable } from "./components/table.js";

liveTable();
