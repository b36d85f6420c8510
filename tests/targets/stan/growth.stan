functions {
  vector logistic(real t, vector y, real r, real capacity) {
    return r * y .* (1 - y / capacity);
  }
}
data {
  int<lower=1> n;
  array[n] real<lower=0> t;
  vector<lower=0>[n] y;
}
parameters {
  real<lower=0> start;
  real<lower=0> r;
  real<lower=0> capacity;
  real<lower=0> sigma;
}
model {
  array[n] vector[1] z = ode_rk45_tol(logistic, [start]', 0, t, 1e-11, 1e-11, 1000000, r, capacity);
  start ~ lognormal(0, 1);
  r ~ lognormal(-1, 1);
  capacity ~ lognormal(2, 1);
  sigma ~ exponential(1);
  for (i in 1 : n) {
    y[i] ~ lognormal(log(z[i][1]), sigma);
  }
}
