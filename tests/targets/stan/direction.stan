data {
  int<lower=1> n;
  array[n] vector[3] u;
  real<lower=0> kappa;
}
parameters {
  unit_vector[3] axis;
  real<lower=-1, upper=1> phi;
  real<lower=phi> above;
}
model {
  phi ~ normal(0, 0.5);
  above ~ normal(1, 1);
  for (i in 1 : n) {
    target += kappa * above * dot_product(u[i], axis) / (1 + square(phi));
  }
}
