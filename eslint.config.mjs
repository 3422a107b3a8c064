// Rules that find defects; types are tsc's.

import js from "@eslint/js";
import globals from "globals";

export default [
  { ignores: ["assets/vendor/"] },
  js.configs.recommended,
  {
    linterOptions: { reportUnusedDisableDirectives: "error" },
    languageOptions: { globals: globals.browser },
    rules: {
      "array-callback-return": "error",
      "consistent-return": "error",
      "eqeqeq": "error",
      "no-constructor-return": "error",
      "no-implied-eval": "error",
      "no-self-compare": "error",
      "no-template-curly-in-string": "error",
      "no-unmodified-loop-condition": "error",
      "no-unreachable-loop": "error",
      "no-unused-vars": ["error", { args: "after-used" }],
      "no-var": "error",
      "prefer-const": "error",
    },
  },
  { files: ["assets/*.js"], languageOptions: { sourceType: "script" } },
  { files: ["tests/js/**"], languageOptions: { globals: globals.node } },
];
