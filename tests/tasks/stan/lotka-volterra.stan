functions {
  vector rates(real t, vector z, array[] real theta) {
    return [theta[1] - theta[2] * exp(z[2]), -theta[3] + theta[4] * exp(z[1])]';
  }
}
data {
  int N;
  array[N] real ts;
  vector[2] y_init;
  array[N] vector[2] y;
}
parameters {
  array[4] real<lower=0> theta;
  vector<lower=0>[2] z_init;
  vector<lower=0>[2] sigma;
}
model {
  array[N] vector[2] log_z = ode_rk45_tol(rates, log(z_init), 0, ts, 1e-11, 1e-11, 1000000, theta);
  theta[{1, 3}] ~ normal(1, 0.5);
  theta[{2, 4}] ~ normal(0.05, 0.05);
  sigma ~ lognormal(-1, 1);
  z_init ~ lognormal(log(10), 1);
  y_init ~ lognormal(log(z_init), sigma);
  for (i in 1 : N) {
    y[i] ~ lognormal(log_z[i], sigma);
  }
}
