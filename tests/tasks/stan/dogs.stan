data {
  int n_dogs;
  int n_trials;
  array[n_dogs, n_trials] int y;
}
parameters {
  vector[3] beta;
}
model {
  beta ~ normal(0, 100);
  for (i in 1 : n_dogs) {
    int shocks = 0;
    for (t in 1 : n_trials) {
      y[i, t] ~ bernoulli_logit(beta[1] + beta[2] * (t - 1 - shocks) + beta[3] * shocks);
      shocks += y[i, t];
    }
  }
}
