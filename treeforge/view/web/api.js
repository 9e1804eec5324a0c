// Where data comes from: the server that this page came from, or the data inside the file.
import { answer } from "./offline.js";

const stored = document.getElementById("bundle");
const bundle = stored ? JSON.parse(stored.textContent) : null;

export const isOffline = bundle !== null;

export async function ask(path, params = {}) {
  if (bundle) return answer(bundle, path, params);
  const address = new URL(`api/${path}`, document.baseURI.split("#")[0]);
  for (const [name, value] of Object.entries(params)) {
    if (value !== "" && value !== null && value !== undefined && value !== false) address.searchParams.set(name, value);
  }
  let reply;
  try {
    reply = await fetch(address, { cache: "no-store" });
  } catch {
    throw new Error("The server does not answer. Is `treeforge view` still running?");
  }
  const type = reply.headers.get("content-type") || "";
  if (!type.startsWith("application/json")) throw new Error((await reply.text()).slice(0, 300));
  const data = await reply.json();
  if (!reply.ok) throw new Error(data.error);
  return data;
}
