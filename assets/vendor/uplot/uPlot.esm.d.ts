// Its own types, for the copy that is served.
export { default } from "uplot";
