// The sign-in form works without it. A classic script, as there is nothing to import.
"use strict";
{
  const password = document.getElementById("password");
  const show = document.getElementById("show-password");
  const display = () => { password.type = show.checked ? "text" : "password"; };
  document.getElementById("show-password-field").hidden = false;
  show.addEventListener("change", display);
  // As text, browsers would keep it with what was typed into other fields.
  password.form.addEventListener("submit", () => { password.type = "password"; });
  // A page from the browser's history comes back as it was left.
  addEventListener("pageshow", display);
}
