data {
  int N;
  int K;
  vector[N] y;
}
parameters {
  simplex[K] theta1;
  simplex[K] theta2;
  positive_ordered[K] mu;
}
model {
  matrix[K, N] log_omega;
  matrix[K, K] Gamma;
  Gamma[1] = theta1';
  Gamma[2] = theta2';
  for (t in 1 : N) {
    for (k in 1 : K) {
      log_omega[k, t] = normal_lpdf(y[t] | mu[k], 1);
    }
  }
  mu[1] ~ normal(3, 1);
  mu[2] ~ normal(10, 1);
  target += hmm_marginal(log_omega, Gamma, rep_vector(0.5, K));
}
