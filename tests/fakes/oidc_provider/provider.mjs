// A provider with one client and the people that it is given: node provider.mjs SETTINGS.json
import { readFileSync } from "node:fs";
import { Provider } from "oidc-provider";

const { issuer, port, client, people } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const provider = new Provider(issuer, {
  clients: [client],
  claims: { openid: ["sub"], profile: ["preferred_username", "groups"] },
  cookies: { keys: ["of the tests"] },
  features: {
    devInteractions: { enabled: true },  // its own forms, for a name without a password
    rpInitiatedLogout: { enabled: true },
    backchannelLogout: { enabled: true },
  },
  // Its own refuses to call an application on this machine.
  fetch: (url, { dispatcher, ...options }) => fetch(url, options),
  pkce: { required: () => true },
  findAccount: (_, id) => people[id] && {
    accountId: id,
    claims: () => ({ sub: id, preferred_username: id, ...people[id] }),
  },
});
provider.proxy = true;  // the tests stand before it
provider.listen(port, "127.0.0.1", () => console.log("listening"));
