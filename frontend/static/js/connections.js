import { showConnectionState } from "./components/connections.js";
import { liveTable } from "./components/table.js";

liveTable(showConnectionState);
