data {
  int T;
  vector[T] y;
}
parameters {
  real mu;
  real phi;
  real theta;
  real<lower=0> sigma;
}
model {
  real error = y[1] - mu - phi * mu;
  mu ~ normal(0, 10);
  phi ~ normal(0, 2);
  theta ~ normal(0, 2);
  sigma ~ cauchy(0, 2.5);
  error ~ normal(0, sigma);
  for (t in 2 : T) {
    error = y[t] - mu - phi * y[t - 1] - theta * error;
    error ~ normal(0, sigma);
  }
}
