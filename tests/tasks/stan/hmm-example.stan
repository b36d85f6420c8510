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
  vector[K] forward = log_omega[ : , 1];
  for (t in 2 : N) {
    vector[K] before = forward;
    for (k in 1 : K) {
      forward[k] = log_sum_exp(before + log(Gamma[ : , k])) + log_omega[k, t];
    }
  }
  target += log_sum_exp(forward);
}
