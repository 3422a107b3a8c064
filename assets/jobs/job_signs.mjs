// What findings are called. Pure.

export const SIGNS = { stuck: "Stuck", slow_rank: "Slow rank", crashed_rank: "Rank ended", starved: "Waiting for data", unused: "Held and unused", memory_unused: "Memory unused" };
